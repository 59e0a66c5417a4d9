package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/s3"
)

// way is a way to make an object durable, and fence it.
type way struct {
	name string
	do   func(ctx context.Context, o *log.Object) error
}

// ways are the bare PUT, signed by hand over net/http with no SDK; the same and a GET of a root behind it; and with each client the PUT,
// and AppendVerify.
func ways(b *testing.B) []way {
	alone, bare := newBare(b), newBare(b)
	l := open(b, bare.o)
	if err := l.CompareAndSwap(b.Context(), nil, log.NewRoot()); err != nil {
		b.Fatal(err)
	}
	out := []way{
		{"bare-PUT", alone.put},
		{"bare-PUT+GET", func(ctx context.Context, o *log.Object) error {
			if err := bare.put(ctx, o); err != nil {
				return err
			}
			return bare.get(ctx, bare.o.Prefix+"/main/ROOT")
		}},
	}
	for _, client := range clients {
		l := open(b, place(b, client))
		root := log.NewRoot().Acquire(log.NewID(), "benchmark")
		root.Version = 1
		if err := l.CompareAndSwap(b.Context(), nil, root); err != nil {
			b.Fatal(err)
		}
		check := log.Check{Instance: root.Instance, Epoch: root.Epoch, Claim: root.Claim}
		out = append(out,
			way{"PUT-" + client, func(ctx context.Context, o *log.Object) error { return l.Append(ctx, root.Instance, o) }},
			way{"AppendVerify-" + client, func(ctx context.Context, o *log.Object) error {
				aerr, verr := l.AppendVerify(ctx, o, check)
				return errors.Join(aerr, verr)
			}})
	}
	return out
}

var flushSizes = []int{1 << 10, 32 << 10}

// BenchmarkFlush measures each way by itself, one flush after the other and eight at once: its median, and what one costs this process.
func BenchmarkFlush(b *testing.B) {
	for _, size := range flushSizes {
		for _, lanes := range []int{1, 8} {
			for _, w := range ways(b) {
				b.Run(fmt.Sprintf("%s/%dKiB/lanes=%d", w.name, size>>10, lanes), func(b *testing.B) {
					before := cpu()
					took := flushes(b, size, lanes, []way{w})
					b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-µs")
					b.ReportMetric(median(took[0]), "p50-µs")
				})
			}
		}
	}
}

// BenchmarkAlternating lets each lane go round all ways, in another order each time, so that what else the machine does meets all of them: their medians.
func BenchmarkAlternating(b *testing.B) {
	for _, size := range flushSizes {
		for _, lanes := range []int{1, 8} {
			ways := ways(b)
			b.Run(fmt.Sprintf("%dKiB/lanes=%d", size>>10, lanes), func(b *testing.B) {
				for i, took := range flushes(b, size, lanes, ways) {
					b.ReportMetric(median(took), ways[i].name+"-p50-µs")
				}
			})
		}
	}
}

func median(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Microseconds())
}

// flushes runs b.N flushes of objects of size bytes in each way, lanes at once, and returns how long they took, by way.
func flushes(b *testing.B, size, lanes int, ways []way) [][]time.Duration {
	claim, lineage := log.NewID(), log.NewID()
	text := strings.Repeat("x", size)
	at := uint64(time.Now().UnixNano()) & (1<<40 - 1) // keys that no earlier run wrote
	objs := make([]*log.Object, b.N)
	for i := range objs {
		t := at + uint64(i)
		prev := log.Pos{Key: log.Key{Epoch: 1, FirstT: t - 1}, Hash: log.Hash{1}}
		var err error
		objs[i], err = log.Encode(log.Header{Lineage: lineage, Claim: claim, Epoch: 1, Kind: log.KindBatch, FirstT: t, Prev: prev},
			transactions(log.KindBatch, t, text), false)
		if err != nil {
			b.Fatal(err)
		}
		objs[i].Hash()
	}
	took := make([][]time.Duration, len(ways))
	for i := range took {
		took[i] = make([]time.Duration, b.N)
	}
	work := make(chan int)
	var wg sync.WaitGroup
	b.ResetTimer()
	for range lanes {
		wg.Go(func() {
			for i := range work {
				for _, j := range rand.Perm(len(ways)) {
					began := time.Now()
					if err := ways[j].do(b.Context(), objs[i]); err != nil {
						b.Error(err)
					}
					took[j][i] = time.Since(began)
				}
			}
		})
	}
	for i := range objs {
		work <- i
	}
	close(work)
	wg.Wait()
	b.StopTimer()
	return took
}

// cpu is what this process, the client, has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bare speaks S3 with nothing but net/http and a signer.
type bare struct {
	o      s3.Options
	client *http.Client
	signer *v4.Signer
	creds  aws.Credentials
}

func newBare(b *testing.B) *bare {
	t := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true, WriteBufferSize: 64 << 10}
	b.Cleanup(t.CloseIdleConnections)
	o := place(b, s3.AWS)
	return &bare{o: o, client: &http.Client{Transport: t},
		signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }),
		creds:  aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}}
}

func (r *bare) put(ctx context.Context, o *log.Object) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, r.url(r.o.Prefix+"/"+o.Key().String()), bytes.NewReader(o.Bytes()))
	if err != nil {
		return err
	}
	req.Header.Set("If-None-Match", "*")
	return r.do(req, o.Hash().String())
}

func (r *bare) get(ctx context.Context, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url(key), nil)
	if err != nil {
		return err
	}
	return r.do(req, emptyHash)
}

func (r *bare) url(key string) string { return r.o.Endpoint + "/" + r.o.Bucket + "/" + key }

func (r *bare) do(req *http.Request, hash string) error {
	req.Header.Set("X-Amz-Content-Sha256", hash)
	if err := r.signer.SignHTTP(req.Context(), r.creds, req, hash, "s3", "us-east-1", time.Now()); err != nil {
		return err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	return nil
}
