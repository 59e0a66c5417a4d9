package testserver

import (
	"context"
	"net/url"
	"os"
)

// CheckEnvironment looks whether the servers that the environment names answer, and returns the first error. It names the variable and never
// holds a password.
func CheckEnvironment(ctx context.Context) error {
	for _, name := range []string{PostgresURL, PgBouncerURL} {
		if u := os.Getenv(name); u != "" {
			if _, err := postgresVersion(ctx, u); err != nil {
				return wrong(name, err)
			}
		}
	}
	if raw := os.Getenv(S3URL); raw != "" {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "s3" || u.Host == "" {
			return wrong(S3URL, errNotS3)
		}
		if _, err := serverHeader(ctx, u.Query().Get("endpoint")); err != nil {
			return wrong(S3URL, err)
		}
	}
	return nil
}

// PostgresInstalled, PgBouncerInstalled and MinIOBuilt return an error that wraps ErrMissing, and says where the programs were looked for, if they
// are not there.
func PostgresInstalled() error  { _, err := postgresBin(); return err }
func PgBouncerInstalled() error { _, err := pgbouncerBin(); return err }
func MinIOBuilt() error         { _, err := builtMinIO(); return err }
