package testserver

import (
	"context"
	"crypto/rand"
	"debug/buildinfo"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// MinIO is a MinIO server of our own: one drive, on a real disk. Its methods may be called concurrently.
type MinIO struct {
	bin        string
	dir        *scratch
	version    string
	key, token string // credentials
	port       int

	mu   sync.Mutex
	proc *process
}

// Bucket is there from the start.
const Bucket = "stele-test"

// StartMinIO starts a MinIO with an empty drive. An error that wraps ErrMissing says that [BuildMinIO] has not run yet.
func StartMinIO(ctx context.Context) (*MinIO, error) {
	bin, err := builtMinIO()
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		return nil, err
	}
	// It runs as ourselves, since its program lies in our cache.
	dir, err := newScratch("minio", nil)
	if err != nil {
		return nil, err
	}
	m := &MinIO{bin: bin, dir: dir, version: info.Main.Version}
	// Test servers of one process tree have the same credentials, so that one environment serves for all.
	m.key, m.token = os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	if !strings.HasPrefix(m.key, keyPrefix) {
		m.key, m.token = keyPrefix+rand.Text()[:8], rand.Text()
	}
	// A directory on the drive is a bucket.
	err = os.MkdirAll(dir.path("drive/"+Bucket), 0o700)
	if err == nil {
		err = m.startOn(ctx, freePort)
	}
	if err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return m, nil
}

const keyPrefix = "stele-test-"

func (m *MinIO) startOn(ctx context.Context, choose func() (int, error)) error {
	return onPort(ctx, choose, func(port int) error {
		m.port = port
		log, err := m.dir.log()
		if err != nil {
			return err
		}
		defer log.Close()
		cmd := m.dir.command(context.Background(), m.bin, "server", "--address", m.Addr(), "--certs-dir", m.dir.path("certs"), m.dir.path("drive"))
		cmd.Env = append(cmd.Env, "MINIO_ROOT_USER="+m.key, "MINIO_ROOT_PASSWORD="+m.token, "MINIO_BROWSER=off", "MINIO_UPDATE=off")
		cmd.Stdout, cmd.Stderr = log, log
		proc, err := start(cmd, syscall.SIGKILL)
		if err != nil {
			return err
		}
		err = proc.ready(ctx, m.health)
		if err != nil {
			_ = proc.end(syscall.SIGKILL)
			return m.dir.explain("minio", err)
		}
		m.proc = proc
		return nil
	})
}

// health asks whether the server and its drive are there.
func (m *MinIO) health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Endpoint()+"/minio/health/cluster", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Server") != "MinIO" {
		return fmt.Errorf("%s, from a server that calls itself %q", resp.Status, resp.Header.Get("Server"))
	}
	return nil
}

// Endpoint is http://host:port, running or not.
func (m *MinIO) Endpoint() string { return "http://" + m.Addr() }

// Addr is the host and port on which it listens, running or not.
func (m *MinIO) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(m.port)) }

// URL is the store URL of [Bucket]. Credentials are not in it: see [MinIO.Environ].
func (m *MinIO) URL() string { return m.URLAt(m.Addr(), "") }

// URLAt is the store URL of a prefix in [Bucket], through whatever listens at addr: a proxy in front of this server, say.
func (m *MinIO) URLAt(addr, prefix string) string {
	u := url.URL{Scheme: "s3", Host: Bucket, RawQuery: "endpoint=http://" + addr}
	if prefix != "" {
		u.Path = "/" + prefix
	}
	return u.String()
}

// AccessKey and SecretKey are its administrator's credentials.
func (m *MinIO) AccessKey() string { return m.key }
func (m *MinIO) SecretKey() string { return m.token }

// Environ is the environment that gives a process its credentials, as NAME=value, and nobody else's.
func (m *MinIO) Environ() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + m.key, "AWS_SECRET_ACCESS_KEY=" + m.token, "AWS_SESSION_TOKEN=", "AWS_PROFILE=",
		"AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
	}
}

// Version is the version of the module that the program was built from: "MinIO v0.0.0-…". The server does not know it.
func (m *MinIO) Version() string { return "MinIO " + m.version }

// Stop ends the server in good order.
func (m *MinIO) Stop() error { return m.stop(syscall.SIGTERM) }

// Kill ends the server at once (SIGKILL).
func (m *MinIO) Kill() error { return m.stop(syscall.SIGKILL) }

func (m *MinIO) stop(sig syscall.Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc == nil {
		return nil
	}
	err := m.proc.end(sig)
	m.proc = nil
	return err
}

// Start starts the server again, on the same port and drive, and returns once it answers. It does nothing if the server runs.
func (m *MinIO) Start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc != nil && !m.proc.ended() {
		return nil
	}
	m.proc = nil
	return m.startOn(ctx, same(m.port))
}

// Close ends the server and removes its files.
func (m *MinIO) Close() error { return errors.Join(m.Kill(), m.dir.remove()) }
