package s3

import (
	"context"
	"encoding/hex"
	"errors"
	"iter"
	"net/http"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/steledb/stele/log"
)

// minioStore is a bucket through minio-go.
type minioStore struct {
	core   minio.Core
	bucket string
}

func newMinIO(s site, h *http.Client) (store, error) {
	endpoint, lookup, secure := "s3.amazonaws.com", minio.BucketLookupAuto, true
	if s.endpoint != nil {
		endpoint, lookup, secure = s.endpoint.Host, minio.BucketLookupPath, s.endpoint.Scheme == "https"
	}
	c, err := minio.New(endpoint, &minio.Options{
		Creds:        credentials.New(&minioCredentials{from: s.credentials}),
		Secure:       secure,
		Transport:    h.Transport,
		Region:       s.region,
		BucketLookup: lookup,
		MaxRetries:   1,
	})
	if err != nil {
		return nil, err
	}
	return &minioStore{minio.Core{Client: c}, s.bucket}, nil
}

func (m *minioStore) put(ctx context.Context, key string, body []byte, sum log.Hash, when condition) (string, error) {
	ctx, p := newPayload(ctx, body)
	defer p.takeBack()
	// With the hash given and streaming off the body is signed as a whole and sent as it is.
	opts := minio.PutObjectOptions{DisableContentSha256: true}
	if when == absent {
		opts.SetMatchETagExcept("*")
	} else {
		opts.SetMatchETag(string(when))
	}
	info, err := m.core.PutObject(ctx, m.bucket, key, p, int64(len(body)), "", hex.EncodeToString(sum[:]), opts)
	if err != nil {
		return "", minioFailure(ctx, "PUT", key, err)
	}
	return info.ETag, nil
}

func (m *minioStore) get(ctx context.Context, key string, limit int) ([]byte, string, error) {
	r, info, _, err := m.core.GetObject(ctx, m.bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, "", minioFailure(ctx, "GET", key, err)
	}
	b, err := readBody(r, info.Size, limit)
	if errors.Is(err, errTooLarge) {
		return nil, "", err
	}
	if err != nil {
		return nil, "", unanswered(ctx, "GET", key, err)
	}
	return b, info.ETag, nil
}

func (m *minioStore) list(ctx context.Context, prefix, after string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		owner := false
		for o := range m.core.ListObjectsIter(ctx, m.bucket, minio.ListObjectsOptions{
			Prefix: prefix, Recursive: true, StartAfter: after, MaxKeys: pageSize, FetchOwner: &owner,
		}) {
			if o.Err != nil {
				yield(entry{}, minioFailure(ctx, "LIST", prefix, o.Err))
				return
			}
			if !yield(entry{o.Key, o.Size}, nil) {
				return
			}
		}
	}
}

func (m *minioStore) remove(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	objects := func(yield func(minio.ObjectInfo) bool) {
		for _, k := range keys {
			if !yield(minio.ObjectInfo{Key: k}) {
				return
			}
		}
	}
	results, err := m.core.RemoveObjectsWithIter(ctx, m.bucket, objects, minio.RemoveObjectsOptions{})
	if err != nil {
		return minioFailure(ctx, "DELETE", keys[0], err)
	}
	for r := range results {
		if r.Err != nil {
			return minioFailure(ctx, "DELETE", r.ObjectName, r.Err)
		}
	}
	if ctx.Err() != nil {
		return unanswered(ctx, "DELETE", keys[0], ctx.Err()) // the sequence ends silently
	}
	return nil
}

func minioFailure(ctx context.Context, op, key string, err error) error {
	var er minio.ErrorResponse
	if !errors.As(err, &er) {
		return unanswered(ctx, op, key, err)
	}
	status := er.StatusCode
	if status == 0 {
		status = statusOf(er.Code) // one key of many
	}
	return answered(op, key, status, er.Code, er.Message)
}

// minioCredentials hands the AWS chain's credentials to minio-go, which keeps them until they expire.
type minioCredentials struct {
	from    aws.CredentialsProvider
	current aws.Credentials
	have    bool
}

// RetrieveWithCredContext is called under minio-go's lock.
func (c *minioCredentials) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	ctx, cancel := context.WithTimeout(context.Background(), credentialsTimeout)
	defer cancel()
	v, err := c.from.Retrieve(ctx)
	if err != nil {
		return credentials.Value{}, err
	}
	c.current, c.have = v, true
	return credentials.Value{AccessKeyID: v.AccessKeyID, SecretAccessKey: v.SecretAccessKey, SessionToken: v.SessionToken,
		Expiration: v.Expires, SignerType: credentials.SignatureV4}, nil
}

func (c *minioCredentials) Retrieve() (credentials.Value, error) {
	return c.RetrieveWithCredContext(nil)
}
func (c *minioCredentials) IsExpired() bool { return !c.have || c.current.Expired() }
