package s3_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/s3"
)

// TestRequests: each call is as few requests as it can be, and a body goes out once, whole, under the hash that is known.
func TestRequests(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		obj := o.batch()
		o.must(o.Append(t.Context(), o.root.Instance, obj))
		r := o.p.requests()[0]
		if !bytes.Equal(r.body, obj.Bytes()) || r.ContentLength != int64(obj.Size()) || len(r.TransferEncoding) > 0 {
			t.Errorf("%d bytes were sent as %d, %v", obj.Size(), len(r.body), r.TransferEncoding)
		}
		if h := r.Header; h.Get("X-Amz-Content-Sha256") != obj.Hash().String() || h.Get("If-None-Match") != "*" || h.Get("Content-Encoding") != "" ||
			h.Get("X-Amz-Trailer") != "" || h.Get("X-Amz-Sdk-Checksum-Algorithm") != "" || h.Get("Expect") != "" {
			t.Errorf("%v", h)
		}
		if _, err := o.Root(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := o.root.Next()
		o.must(o.CompareAndSwap(t.Context(), o.root, next))
		o.root = next.Next()
		o.must(o.CompareAndSwap(t.Context(), next, o.root))
		o.must(o.Verify(t.Context(), o.check()))
		if got, want := fmt.Sprint(o.p.ops()), "[GET ROOT PUT ROOT PUT ROOT GET ROOT]"; got != want {
			t.Errorf("root, two swaps and a fence: %s, want %s", got, want)
		}
		// A root that was written elsewhere costs a read, and none that was not there is written.
		far := o.root.Next()
		o.must(o.far.CompareAndSwap(t.Context(), o.root, far))
		if err := o.CompareAndSwap(t.Context(), o.root, o.root.Next()); !errors.Is(err, log.ErrConflict) {
			t.Errorf("%v", err)
		}
		o.must(o.CompareAndSwap(t.Context(), far, far.Next()))
		if got, want := fmt.Sprint(o.p.ops()), "[PUT ROOT GET ROOT PUT ROOT]"; got != want {
			t.Errorf("a swap that lost and one that did not: %s, want %s", got, want)
		}
		never := far.Next()
		never.Owner = "never"
		if err := o.CompareAndSwap(t.Context(), never, never.Next()); !errors.Is(err, log.ErrConflict) {
			t.Errorf("%v", err)
		}
		if got, want := fmt.Sprint(o.p.ops()), "[GET ROOT]"; got != want {
			t.Errorf("a swap of what never was: %s, want %s", got, want)
		}
	})
}

// TestConnections: they are used again, whatever the answers were; the root has its own; closing the handle closes all.
func TestConnections(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		_, before := o.p.connections()
		objs := make([]*log.Object, 200)
		for i := range objs {
			objs[i] = o.batch()
		}
		var wg sync.WaitGroup
		for lane := range 8 {
			wg.Go(func() {
				for i := lane; i < len(objs); i += 8 {
					if aerr, verr := o.AppendVerify(t.Context(), objs[i], o.check()); aerr != nil || verr != nil {
						t.Error(aerr, verr)
					}
					if err := o.Append(t.Context(), o.root.Instance, objs[i]); err != nil { // 412
						t.Error(err)
					}
					if _, err := o.Get(t.Context(), o.root.Instance, log.Key{Epoch: 9, FirstT: 9}); !errors.Is(err, log.ErrNotFound) { // 404
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if _, made := o.p.connections(); made-before > 16 { // eight, and some that were dialled while another became free
			t.Errorf("%d connections for eight at once", made-before)
		}
		o.p.requests()
		if _, _, err := o.RootAge(t.Context()); err != nil {
			t.Error(err)
		}
		o.must(o.CompareAndSwap(t.Context(), o.root, o.root.Next()))
		control := map[string]bool{}
		for _, r := range o.p.requests() {
			control[r.RemoteAddr] = true
		}
		if _, err := o.Get(t.Context(), o.root.Instance, objs[0].Key()); err != nil {
			t.Error(err)
		}
		for _, r := range o.p.requests() {
			if len(control) != 1 || control[r.RemoteAddr] {
				t.Errorf("%v were the root's connections, and %s reads an object", control, r.RemoteAddr)
			}
		}
		o.must(o.Close())
		for open := -1; open != 0; {
			open, _ = o.p.connections() // the test's own time limit ends this
			runtime.Gosched()
		}
	})
}

// TestSilentConnection: a call that gets no answer in time takes the idle connections with it, which may be as dead.
func TestSilentConnection(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		var all sync.WaitGroup
		all.Add(8)
		o.p.follow(func(r *request) *http.Response { all.Done(); all.Wait(); return pass(r) }) // eight at once, so eight connections
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := o.Verify(t.Context(), o.check()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if open, _ := o.p.connections(); open < 8 {
			t.Fatalf("%d connections", open)
		}
		o.p.follow(func(r *request) *http.Response { <-r.Context().Done(); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := o.Verify(ctx, o.check()); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for open := 8; open > s3.ControlConns; { // those of the root stay; the test's own time limit ends this
			open, _ = o.p.connections()
			runtime.Gosched()
		}
	})
}

// TestRootDoesNotWait: a lease is renewed while every append is stuck in the store.
func TestRootDoesNotWait(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		stuck := make(chan struct{}, 300)
		o.p.follow(func(r *request) *http.Response {
			if r.op == "PUT" && !strings.HasSuffix(r.key, "ROOT") {
				stuck <- struct{}{}
				<-r.Context().Done()
				return nil
			}
			return pass(r)
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 200 {
			obj := o.batch()
			wg.Go(func() {
				if err := o.Append(ctx, o.root.Instance, obj); !errors.Is(err, context.Canceled) || log.OutcomeOf(err) != log.Unknown {
					t.Error(err)
				}
			})
		}
		for range 200 {
			<-stuck
		}
		root, _, err := o.RootAge(t.Context())
		o.must(err)
		o.must(o.CompareAndSwap(t.Context(), root, root.Next()))
		o.must(o.Verify(t.Context(), o.check()))
		cancel()
		wg.Wait()
	})
}

// TestNoSecrets: no key, password or token is in any error, in any log line, or in what describes the handle.
func TestNoSecrets(t *testing.T) {
	const secret, token, id = "hunter2hunter2hunter2", "tokentokentoken", "AKIAIDIDIDIDIDIDID"
	eachClient(t, func(t *testing.T, o s3.Options) {
		var text bytes.Buffer
		o.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
		say := func(err error) {
			fmt.Fprintf(&text, "%v\n%+v\n%#v\n", err, err, err)
			for ; err != nil; err = errors.Unwrap(err) {
				fmt.Fprintln(&text, err)
			}
		}
		good := open(t, o)
		right := os.Getenv("AWS_SECRET_ACCESS_KEY")

		// With credentials that the store does not know, and wrong ones for a name that it knows.
		for _, name := range []string{id, os.Getenv("AWS_ACCESS_KEY_ID")} {
			t.Setenv("AWS_ACCESS_KEY_ID", name)
			t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
			t.Setenv("AWS_SESSION_TOKEN", token)
			_, err := s3.Open(t.Context(), o)
			if err == nil {
				t.Fatal("opened with wrong credentials")
			}
			say(err)
			t.Setenv("AWS_SESSION_TOKEN", "")
			_, err = s3.Open(t.Context(), o)
			say(err)
		}

		// With right ones, and everything that goes wrong later.
		t.Setenv("AWS_SECRET_ACCESS_KEY", right)
		p := newProxy(t, &o)
		l := open(t, o)
		fmt.Fprintf(&text, "%+v\n", l.Info())
		for _, r := range []rule{drop, says(403, "AccessDenied"), says(500, "InternalError"), says(400, "AuthorizationHeaderMalformed"), says(404, "NoSuchBucket"),
			func(*request) *http.Response { return &http.Response{StatusCode: 502, Body: http.NoBody} }} {
			p.follow(r)
			root := log.NewRoot()
			say(l.CompareAndSwap(t.Context(), nil, root))
			_, err := l.Root(t.Context())
			say(err)
			say(l.PutBlob(t.Context(), root.Instance, "1-x", nil))
			say(l.Delete(t.Context(), root.Instance, log.MaxKey))
			for _, err := range l.List(t.Context(), root.Instance, log.Key{}) {
				say(err)
			}
		}
		l.Close()
		good.Close()
		say(l.PutBlob(t.Context(), log.NewID(), "1-x", nil))

		// And those that cannot be had: files that are no configuration.
		file := filepath.Join(t.TempDir(), "credentials")
		if err := os.WriteFile(file, []byte("[default]\naws_access_key_id = "+id+"\n"+secret+"\naws_secret_access_key "+secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
			t.Setenv(name, "")
		}
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
		t.Setenv("AWS_CONFIG_FILE", file)
		t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
		_, err := s3.Open(t.Context(), o)
		if err == nil {
			t.Fatal("opened without credentials")
		}
		say(err)
		if !strings.Contains(err.Error(), "partial credentials found for profile default") {
			t.Errorf("half credentials: %v", err)
		}
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file+"-none")
		t.Setenv("AWS_CONFIG_FILE", file+"-none")
		_, err = s3.Open(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "set AWS_ACCESS_KEY_ID") {
			t.Errorf("no credentials: %v", err)
		}
		say(err)

		for _, s := range []string{secret, token, right, id} {
			if i := strings.Index(text.String(), s); i >= 0 {
				t.Errorf("%q stands in: …%s…", s, text.String()[max(0, i-200):min(i+200, text.Len())])
			}
		}
	})
}

// TestCredentials: where they come from.
func TestCredentials(t *testing.T) {
	eachClient(t, func(t *testing.T, o s3.Options) {
		id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
		if id == "" {
			testserver.Lacking(t, "the server's credentials are not in the environment")
		}
		file := filepath.Join(t.TempDir(), "credentials")
		text := fmt.Sprintf("[app]\naws_access_key_id = %s\naws_secret_access_key = %s\n", id, secret)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		names := []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
			"MINIO_ACCESS_KEY", "MINIO_SECRET_KEY", "MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", "AWS_REGION", "AWS_ENDPOINT_URL_S3"}
		endpoint := o.Endpoint
		for name, env := range map[string]map[string]string{
			"the AWS variables":    {"AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": secret, "MINIO_ROOT_USER": "nobody", "MINIO_ROOT_PASSWORD": "nothing"},
			"a profile":            {"AWS_SHARED_CREDENTIALS_FILE": file, "AWS_PROFILE": "app", "MINIO_ROOT_USER": "nobody", "MINIO_ROOT_PASSWORD": "nothing"},
			"MinIO's variables":    {"MINIO_ROOT_USER": id, "MINIO_ROOT_PASSWORD": secret},
			"MinIO's older ones":   {"MINIO_ACCESS_KEY": id, "MINIO_SECRET_KEY": secret},
			"an endpoint from AWS": {"AWS_ENDPOINT_URL_S3": endpoint, "MINIO_ROOT_USER": id, "MINIO_ROOT_PASSWORD": secret},
		} {
			for _, n := range names {
				t.Setenv(n, env[n])
			}
			o.Endpoint = endpoint
			if env["AWS_ENDPOINT_URL_S3"] != "" {
				o.Endpoint = ""
			}
			l, err := s3.Open(t.Context(), o)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if !strings.HasSuffix(l.Info().Location, " at "+endpoint) {
				t.Errorf("%s: %s", name, l.Info().Location)
			}
			l.Close()
		}
		for _, n := range names {
			t.Setenv(n, "")
		}
		o.Endpoint = ""
		if _, err := s3.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "region") {
			t.Errorf("AWS without a region: %v", err)
		}
	})
}

// TestTLS: over https too a body is signed by its hash; the roots are those of AWS_CA_BUNDLE.
func TestTLS(t *testing.T) {
	eachClient(t, func(t *testing.T, o s3.Options) {
		p := unstartedProxy(t, &o)
		p.StartTLS()
		o.Endpoint = p.URL
		if _, err := s3.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Fatalf("a certificate that nobody vouches for: %v", err)
		}
		bundle := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("AWS_CA_BUNDLE", bundle)
		l := open(t, o)
		root := log.NewRoot()
		if err := l.CompareAndSwap(t.Context(), nil, root); err != nil {
			t.Fatal(err)
		}
		if got, err := l.Root(t.Context()); err != nil || *got != *root {
			t.Errorf("%+v, %v", got, err)
		}
		for _, r := range p.requests() {
			if h := r.Header.Get("X-Amz-Content-Sha256"); r.op == "PUT" && len(h) != 64 {
				t.Errorf("a body is signed as %q", h)
			}
			if r.ProtoMajor != 1 {
				t.Errorf("%s", r.Proto)
			}
		}
		l.Close()
	})
}

// TestKilledServer kills the store under appends and starts it again: every call gets an answer, and what was acknowledged is there.
func TestKilledServer(t *testing.T) {
	m := testserver.OwnMinIO(t)
	for _, e := range m.Environ() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	for _, client := range clients {
		t.Run(client, func(t *testing.T) {
			o := own(t, s3.Options{Bucket: testserver.Bucket, Prefix: client, Endpoint: m.Endpoint(), Client: client})
			l := open(t, s3.Options{Bucket: testserver.Bucket, Prefix: client, Endpoint: m.Endpoint(), Client: client}) // no proxy: the sockets break
			objs := make(chan *log.Object)
			var mu sync.Mutex
			var acked, open []*log.Object
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for obj := range objs {
						err := l.Append(t.Context(), o.root.Instance, obj)
						mu.Lock()
						switch {
						case err == nil:
							acked = append(acked, obj)
						case log.OutcomeOf(err) == log.Rejected:
							t.Errorf("%s: %v", obj.Key(), err)
						default:
							open = append(open, obj)
						}
						mu.Unlock()
					}
				})
			}
			for i := range 300 {
				switch i {
				case 80, 200:
					o.must(m.Kill())
				case 140, 220:
					o.must(m.Start(t.Context()))
				}
				objs <- o.batch()
			}
			close(objs)
			wg.Wait()
			t.Logf("%d acknowledged, %d not", len(acked), len(open))
			if len(acked) < 100 || len(open) == 0 {
				t.Errorf("%d acknowledged, %d not: the server was not killed under appends", len(acked), len(open))
			}
			for _, obj := range open { // the same bytes again
				o.must(l.Append(t.Context(), o.root.Instance, obj))
			}
			n := 0
			for obj, err := range l.Read(t.Context(), o.root.Instance, log.StartKey(1)) {
				o.must(err)
				n++
				if obj.FirstT != uint64(n) {
					t.Fatalf("%s is number %d", obj.Key(), n)
				}
			}
			if n != 300 {
				t.Errorf("%d objects", n)
			}
			for _, obj := range acked {
				if got, err := l.Get(t.Context(), o.root.Instance, obj.Key()); err != nil || got.Hash() != obj.Hash() {
					t.Errorf("%s was acknowledged: %v", obj.Key(), err)
				}
			}
		})
	}
}
