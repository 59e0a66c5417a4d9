package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
)

// site is where a bucket is and how to speak with it: what Options say, and behind them the environment.
type site struct {
	bucket      string
	endpoint    *url.URL // nil: AWS
	region      string
	credentials aws.CredentialsProvider
	tls         *tls.Config // nil: the system's roots
	config      aws.Config  // what else the environment says, for the AWS client
}

const (
	// defaultRegion is what servers that have no regions expect.
	defaultRegion = "us-east-1"
	// credentialsTimeout bounds how long credentials may take to come.
	credentialsTimeout = 15 * time.Second
)

// findSite asks the AWS SDK's configuration chain for what o leaves open: the environment, the shared files, and for credentials
// what the machine's role gives. With an endpoint, credentials that stand in the environment as MinIO writes them go before
// the files.
func findSite(ctx context.Context, o Options) (site, error) {
	load := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{}), config.WithLogConfigurationWarnings(false)}
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		if ctx.Err() != nil {
			return site{}, ctx.Err()
		}
		return site{}, fmt.Errorf("the AWS configuration of this process cannot be read: %w", summary(err))
	}
	s := site{bucket: o.Bucket, region: cfg.Region, config: cfg}
	endpoint := o.Endpoint
	if endpoint == "" {
		endpoint = aws.ToString(s3.NewFromConfig(cfg).Options().BaseEndpoint) // AWS_ENDPOINT_URL_S3 and what else there is
	}
	if endpoint != "" {
		if s.endpoint, err = parseEndpoint(endpoint); err != nil {
			return site{}, err
		}
	}
	if s.region == "" {
		if s.endpoint == nil {
			return site{}, errors.New("the bucket's region is not known: say region=…, or set AWS_REGION")
		}
		s.region = defaultRegion
	}
	if h, ok := cfg.HTTPClient.(interface{ GetTransport() *http.Transport }); ok {
		if t := h.GetTransport().TLSClientConfig; t != nil && t.RootCAs != nil { // AWS_CA_BUNDLE
			s.tls = &tls.Config{RootCAs: t.RootCAs, MinVersion: tls.VersionTLS12}
		}
	}
	from := cfg.Credentials
	if m := minioEnvironment(); m != nil && s.endpoint != nil && os.Getenv("AWS_ACCESS_KEY_ID") == "" && os.Getenv("AWS_PROFILE") == "" {
		from = *m
	}
	s.credentials = aws.NewCredentialsCache(chain{from}, func(c *aws.CredentialsCacheOptions) { c.ExpiryWindow = time.Minute })
	if _, err := s.credentials.Retrieve(ctx); err != nil {
		if ctx.Err() != nil {
			return site{}, ctx.Err()
		}
		if ce := (*credentialsError)(nil); errors.As(err, &ce) {
			err = ce
		}
		return site{}, err
	}
	return s, nil
}

// minioEnvironment is the credentials that the environment holds as MinIO's programs write them, or nil.
func minioEnvironment() *credentials.StaticCredentialsProvider {
	for _, names := range [][2]string{{"MINIO_ACCESS_KEY", "MINIO_SECRET_KEY"}, {"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"}} {
		if id, secret := os.Getenv(names[0]), os.Getenv(names[1]); id != "" && secret != "" {
			p := credentials.NewStaticCredentialsProvider(id, secret, "")
			return &p
		}
	}
	return nil
}

// chain marks the errors of where credentials come from.
type chain struct{ from aws.CredentialsProvider }

func (c chain) Retrieve(ctx context.Context) (aws.Credentials, error) {
	if c.from == nil {
		return aws.Credentials{}, &credentialsError{}
	}
	v, err := c.from.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, &credentialsError{err}
	}
	return v, nil
}

// credentialsError: there are none, or they could not be had.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string {
	s := "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or with an endpoint MINIO_ROOT_USER and MINIO_ROOT_PASSWORD"
	if e.err != nil {
		s += ": " + summary(e.err).Error()
	}
	return s
}

func (e *credentialsError) Unwrap() error { return e.err }

// summary is the innermost text of an error of the SDK's configuration, cut where it could quote a file or a program's output.
func summary(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return errors.New(text)
}

// String says where the bucket is.
func (s site) String() string {
	if s.endpoint == nil {
		return "AWS " + s.region
	}
	return s.endpoint.String()
}

// open makes a store with connections of its own, and what closes those that are idle.
func (s site) open(client string, idle int) (store, func(), error) {
	h := s.httpClient(idle)
	switch client {
	case AWS:
		return newAWS(s, h), h.CloseIdleConnections, nil
	case MinIO:
		st, err := newMinIO(s, h)
		return st, h.CloseIdleConnections, err
	default:
		return nil, nil, fmt.Errorf("there is no S3 client %q; there are %s and %s", client, AWS, MinIO)
	}
}
