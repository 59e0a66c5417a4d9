package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/internal/netfault"
	"github.com/steledb/stele/log"
)

// far puts a proxy in front of the server that a store URL names, so that each byte arrives delay later in each direction, and returns the URL of the
// store behind it. stop ends it.
func far(storeURL string, delay time.Duration) (behind string, stop func() error, err error) {
	u, err := url.Parse(storeURL)
	if err != nil {
		return "", nil, errors.New("-delay takes a URL of one server")
	}
	var target string
	redirect := func(addr string) { u.Host = addr }
	switch u.Scheme {
	case "postgres", "postgresql":
		target = u.Host
		if u.Port() == "" {
			target = net.JoinHostPort(u.Hostname(), "5432")
		}
	case "s3":
		q := u.Query()
		e, err := url.Parse(q.Get("endpoint"))
		if err != nil || e.Scheme != "http" || e.Port() == "" {
			return "", nil, errors.New("-delay takes an s3 URL with an endpoint of the form http://host:port")
		}
		target = e.Host
		redirect = func(addr string) {
			e.Host = addr
			q.Set("endpoint", e.String())
			u.RawQuery = q.Encode()
		}
	default:
		return "", nil, fmt.Errorf("%s: is no store behind a network", u.Scheme)
	}
	proxy, err := netfault.Listen(target)
	if err != nil {
		return "", nil, err
	}
	proxy.Set(netfault.Both(netfault.Link{Delay: delay}))
	redirect(proxy.Addr())
	return u.String(), proxy.Close, nil
}

// plain is the lane of a program without a library: each client writes its transaction by one statement, or one PUT, of its own, on as many
// connections as the transactor has.
type plain struct {
	w   *workload
	o   *ownedLog
	put func(context.Context, log.ID, *log.Object) error
	t   *atomic.Uint64
}

// plainer is a store that has a simpler way to write than Append.
type plainer interface {
	Plain(ctx context.Context, inst log.ID, o *log.Object) error
}

func newPlain(o *ownedLog, w *workload) *plain {
	l := &plain{w: w, o: o, put: o.Append, t: new(atomic.Uint64)}
	if p, ok := o.Log.(plainer); ok {
		l.put = p.Plain
	}
	return l
}

type plainClient struct {
	l  *plain
	m  *maker
	tx datom.Tx
}

func (l *plain) client(level, i int) clientLane { return &plainClient{l: l, m: l.w.maker(level, i)} }

func (c *plainClient) commit(ctx context.Context, n uint64) (t uint64, fatal bool, err error) {
	c.m.datoms(&c.tx, n)
	t = c.l.t.Add(1)
	renumber(&c.tx, t)
	root := c.l.o.root
	obj, err := log.Encode(log.Header{
		Lineage: root.Lineage, Claim: root.Claim, Epoch: root.Epoch, Kind: log.KindBatch, FirstT: t, Prev: c.l.o.head,
	}, []*datom.Tx{&c.tx}, false)
	if err == nil {
		err = c.l.put(ctx, root.Instance, obj)
	}
	return t, true, err
}

// plainly measures the plain lane.
func (b *bench) plainly(ctx context.Context, clients int) (txPerSec, p50 float64, err error) {
	what := plural(clients, "client") + ", without a library"
	b.p.step("%s: measuring", what)
	err = b.withLog(ctx, func(o *ownedLog) error {
		lp := runLoop(ctx, newPlain(o, b.w), len(b.loops), clients, b.s.limit(), b.p, what, nil)
		h, err := lp.latencies()
		if err != nil {
			return err
		}
		txPerSec, p50 = float64(lp.acknowledged())/lp.seconds, micros(h.ValueAtQuantile(50))
		_, err = lp.failed()
		return err
	})
	return txPerSec, p50, err
}

const (
	farDelay    = 5 * time.Millisecond // each way
	farDepth    = 8
	farBatch    = 16
	pipelining  = 4.0
	commitBound = 1.3
	// minioGoal is the first goal for a MinIO server on the same two cores, in transactions per second.
	minioGoal = 25_000
)

// networked are the medians that the promises about a store behind a network are made of. Plain lanes are µs and transactions per second.
type networked struct {
	backend              string
	near1, near256       *result
	plain1, plain256     float64
	far1, deep, shallow  *result
	farDelay             time.Duration
	nearFence, farFence  float64
	plainP50, plainP50At float64
}

func (m *networked) ratios() []ratio {
	rate := func(v float64) string { return grouped(int64(v)) }
	away := 2*inMicros(m.farDelay) + m.plainP50
	out := []ratio{
		atMost("p50 at 1 / the plain operation's", m.near1.P50/m.plainP50, commitBound, fmt.Sprintf("%s / %s", span(m.near1.P50), span(m.plainP50))),
		atLeast("tx/s at 256 / plain operations at 256", m.near256.TxPerSec/m.plain256, 1, fmt.Sprintf("%s / %s", rate(m.near256.TxPerSec), rate(m.plain256))),
		atMost("far: p50 at 1 / (round trip + plain, near)", m.far1.P50/away, commitBound, fmt.Sprintf("%s / %s", span(m.far1.P50), span(away))),
		atLeast(fmt.Sprintf("far: tx/s at 256, batches of %d, depth %d / 1", farBatch, farDepth), m.deep.TxPerSec/m.shallow.TxPerSec, pipelining,
			fmt.Sprintf("%s / %s", rate(m.deep.TxPerSec), rate(m.shallow.TxPerSec))),
	}
	if m.backend == "s3" { // a commit is a PUT and then a GET of the root, so a single one cannot come close to the PUT's own
		out = append(out[1:2:2], out[3], atLeast("tx/s at 256 / first goal", m.near256.TxPerSec/minioGoal, 1, fmt.Sprintf("%s / %s", rate(m.near256.TxPerSec), rate(minioGoal))))
	}
	return out
}

// acceptNetwork measures the promises about a store behind a network, three rounds in turn. Its databases are deleted at the end.
func acceptNetwork(ctx context.Context, s *settings, stdout io.Writer, p *progress) (err error) {
	farURL, stop, err := far(s.store, farDelay)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	run := fmt.Sprintf("accept-%08x", rand.Uint32())
	var benches []*bench
	defer func() {
		for _, b := range benches {
			err = errors.Join(err, b.close(), remove(b.url))
		}
	}()
	open := func(storeURL, name string, change func(*settings)) (*bench, error) {
		own := *s
		change(&own)
		storeURL, err := config.WithDB(storeURL, run+"-"+name)
		if err != nil {
			return nil, err
		}
		b, err := openBench(ctx, &own, storeURL, p)
		if err == nil {
			benches = append(benches, b)
		}
		return b, err
	}
	near, err := open(s.store, "near", func(*settings) {})
	if err != nil {
		return err
	}
	away, err := open(farURL, "far", func(*settings) {})
	if err != nil {
		return err
	}
	deep, err := open(farURL, "deep", func(s *settings) { s.depth, s.maxBatch = farDepth, farBatch })
	if err != nil {
		return err
	}
	shallow, err := open(farURL, "shallow", func(s *settings) { s.depth, s.maxBatch = 1, farBatch })
	if err != nil {
		return err
	}
	steps := []struct {
		what    string
		b       *bench
		clients int
		results []*result
	}{{"near", near, 1, nil}, {"near", near, 256, nil}, {"far", away, 1, nil}, {"far, depth 8", deep, 256, nil}, {"far, depth 1", shallow, 256, nil}}
	var plain1, plain256, plainP50, plainP256 []float64
	for round := range acceptRounds {
		for i := range steps {
			st := &steps[i]
			r, err := st.b.level(ctx, st.clients)
			if err != nil {
				return err
			}
			if ctx.Err() != nil {
				return nil // half of a comparison says nothing
			}
			st.results = append(st.results, r)
			p.note("round %d of %d, %s, %s: %s tx/s, p50 %s", round+1, acceptRounds, st.what, plural(st.clients, "client"), grouped(int64(r.TxPerSec)), span(r.P50))
			if st.b != near {
				continue
			}
			rate, p50, err := near.plainly(ctx, st.clients)
			if err != nil || ctx.Err() != nil {
				return err
			}
			p.note("round %d of %d, without a library, %s: %s tx/s, p50 %s", round+1, acceptRounds, plural(st.clients, "client"), grouped(int64(rate)), span(p50))
			if st.clients == 1 {
				plain1, plainP50 = append(plain1, rate), append(plainP50, p50)
			} else {
				plain256, plainP256 = append(plain256, rate), append(plainP256, p50)
			}
		}
	}
	same := func(v float64) float64 { return v }
	m := &networked{
		backend: near.info.Backend, farDelay: farDelay,
		near1: medians(steps[0].results), near256: medians(steps[1].results), far1: medians(steps[2].results),
		deep: medians(steps[3].results), shallow: medians(steps[4].results),
		plain1: median(plain1, same), plain256: median(plain256, same), plainP50: median(plainP50, same), plainP50At: median(plainP256, same),
		nearFence: inMicros(near.fence), farFence: inMicros(away.fence),
	}
	p.done()
	ratios := m.ratios()
	if !s.json {
		fmt.Fprintf(stdout, "machine     %s %s/%s, %d CPUs, shared with the server\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
		fmt.Fprintf(stdout, "store       %s (%s)\n", near.info.Location, near.info.Durability)
		fmt.Fprintf(stdout, "round trip  %s for a fence near, %s far, through a proxy that adds %s each way\n", span(m.nearFence), span(m.farFence), farDelay)
		fmt.Fprintf(stdout, "plain       %s for a plain operation at 1; %s operations/s, p50 %s, at 256 clients\n", span(m.plainP50), grouped(int64(m.plain256)), span(m.plainP50At))
		fmt.Fprintf(stdout, "loop        closed, inserts of %s, %s a level; medians of %d rounds in turn\n\n", plural(s.datoms, "datom"), s.duration, acceptRounds)
		for _, st := range steps {
			fmt.Fprintln(stdout, st.what)
			(&table{w: stdout}).row(medians(st.results))
		}
	}
	return printRatios(stdout, s, ratios)
}

// remove deletes a database.
func remove(storeURL string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := config.OpenLog(ctx, storeURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return log.Delete(ctx, l, log.DeleteOptions{})
}
