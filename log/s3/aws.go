package s3

import (
	"context"
	"encoding/hex"
	"errors"
	"iter"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/steledb/stele/log"
)

// awsStore is a bucket through aws-sdk-go-v2.
type awsStore struct {
	client *s3.Client
	bucket string
}

func newAWS(s site, h *http.Client) store {
	return &awsStore{bucket: s.bucket, client: s3.NewFromConfig(s.config, func(o *s3.Options) {
		o.Region, o.Credentials, o.HTTPClient = s.region, s.credentials, h
		if o.UsePathStyle = s.endpoint != nil; o.UsePathStyle {
			o.BaseEndpoint = aws.String(s.endpoint.String())
		}
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
		o.ContinueHeaderThresholdBytes = -1 // a round trip more for every large object
		// The SHA-256 that is signed covers the body already, and not every store knows the newer checksums, least of all in trailers.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
	})}
}

func (a *awsStore) put(ctx context.Context, key string, body []byte, sum log.Hash, when condition) (string, error) {
	ctx, p := newPayload(ctx, body)
	defer p.takeBack()
	in := &s3.PutObjectInput{Bucket: &a.bucket, Key: &key, Body: p, ContentLength: aws.Int64(int64(len(body)))}
	if when == absent {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = aws.String(string(when))
	}
	out, err := a.client.PutObject(ctx, in, func(o *s3.Options) { o.APIOptions = append(o.APIOptions, withHash(sum)) })
	if err != nil {
		return "", awsFailure(ctx, "PUT", key, err)
	}
	return aws.ToString(out.ETag), nil
}

// withHash signs a body by the SHA-256 that is known, instead of computing it again.
func withHash(sum log.Hash) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("SteleContentHash",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				return next.HandleInitialize(v4.SetPayloadHash(ctx, hex.EncodeToString(sum[:])), in)
			}), middleware.After)
	}
}

func (a *awsStore) get(ctx context.Context, key string, limit int) ([]byte, string, error) {
	out, err := a.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &a.bucket, Key: &key})
	if err != nil {
		return nil, "", awsFailure(ctx, "GET", key, err)
	}
	declared := int64(-1)
	if out.ContentLength != nil {
		declared = *out.ContentLength
	}
	b, err := readBody(out.Body, declared, limit)
	if errors.Is(err, errTooLarge) {
		return nil, "", err
	}
	if err != nil {
		return nil, "", unanswered(ctx, "GET", key, err)
	}
	return b, aws.ToString(out.ETag), nil
}

func (a *awsStore) list(ctx context.Context, prefix, after string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		in := &s3.ListObjectsV2Input{Bucket: &a.bucket, Prefix: &prefix, MaxKeys: aws.Int32(pageSize)}
		if after != "" {
			in.StartAfter = &after
		}
		for {
			out, err := a.client.ListObjectsV2(ctx, in)
			if err != nil {
				yield(entry{}, awsFailure(ctx, "LIST", prefix, err))
				return
			}
			for _, o := range out.Contents {
				if !yield(entry{aws.ToString(o.Key), aws.ToInt64(o.Size)}, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			if aws.ToString(out.NextContinuationToken) == "" {
				yield(entry{}, answered("LIST", prefix, 501, "", "a page is not the last and does not say how to go on"))
				return
			}
			in.StartAfter, in.ContinuationToken = nil, out.NextContinuationToken
		}
	}
}

func (a *awsStore) remove(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	ids := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		ids[i].Key = &keys[i]
	}
	out, err := a.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &a.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)}})
	if err != nil {
		return awsFailure(ctx, "DELETE", keys[0], err)
	}
	for _, e := range out.Errors {
		return answered("DELETE", aws.ToString(e.Key), statusOf(aws.ToString(e.Code)), aws.ToString(e.Code), aws.ToString(e.Message))
	}
	return nil
}

func awsFailure(ctx context.Context, op, key string, err error) error {
	var re *smithyhttp.ResponseError
	if !errors.As(err, &re) || re.HTTPStatusCode() == 0 {
		return unanswered(ctx, op, key, err)
	}
	var code, message string
	if ae := smithy.APIError(nil); errors.As(err, &ae) {
		code, message = ae.ErrorCode(), ae.ErrorMessage()
	}
	status := re.HTTPStatusCode()
	if status < 300 { // the answer to a success could not be read, or is an error all the same
		return &failure{kind: lost, op: op + " " + key, status: status, code: code, message: message}
	}
	return answered(op, key, status, code, message)
}

// statusOf is the status that goes with a code where an answer about many keys has only codes.
func statusOf(code string) int {
	switch code {
	case "AccessDenied":
		return 403
	case "InternalError":
		return 500
	case "SlowDown", "ServiceUnavailable":
		return 503
	default:
		return 400
	}
}
