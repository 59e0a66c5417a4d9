package fs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
)

// counting counts the fdatasyncs of epoch files.
type counting struct {
	fs.OS
	syncs atomic.Int64
}

type countingFile struct {
	fs.File
	c *counting
}

func (c *counting) Open(name string, flag int) (fs.File, error) {
	f, err := c.OS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return countingFile{f, c}, nil
}

func (f countingFile) Datasync() error {
	f.c.syncs.Add(1)
	return f.File.Datasync()
}

const benchSize = 200 // of an object's text, in bytes

// BenchmarkAppend appends objects of one transaction each from n goroutines that each wait for their answer.
func BenchmarkAppend(b *testing.B) {
	for _, clients := range []int{1, 2, 4, 16, 256} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			c := &counting{}
			l, err := fs.Open(context.Background(), fs.Options{Dir: diskDir(b), FS: c})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			o, err := own(context.Background(), l)
			if err != nil {
				b.Fatal(err)
			}
			objs := make([]*log.Object, b.N)
			for i := range objs {
				if objs[i], err = o.batch(benchSize); err != nil {
					b.Fatal(err)
				}
			}
			c.syncs.Store(0)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.SetBytes(int64(objs[0].Size()))
			b.ResetTimer()
			for range clients {
				wg.Go(func() {
					for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
						if err := l.Append(context.Background(), o.root.Instance, objs[i]); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
			b.ReportMetric(float64(b.N)/float64(c.syncs.Load()), "objects/fdatasync")
		})
	}
}

// BenchmarkBareSync is the disk's own time for a write of as many bytes and an fdatasync, in a preallocated file.
func BenchmarkBareSync(b *testing.B) {
	for _, objects := range []int{1, 128, 256} {
		b.Run(fmt.Sprintf("objects=%d", objects), func(b *testing.B) {
			f, err := os.Create(filepath.Join(diskDir(b), "bare"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			buf := make([]byte, objects*(benchSize+320))
			if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(len(buf))*int64(b.N)); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for i := range b.N {
				if _, err := f.WriteAt(buf, int64(i)*int64(len(buf))); err != nil {
					b.Fatal(err)
				}
				if err := unix.Fdatasync(int(f.Fd())); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "syncs/s")
		})
	}
}

// BenchmarkRead replays a log of objects of one transaction each.
func BenchmarkRead(b *testing.B) {
	l, err := fs.Open(context.Background(), fs.Options{Dir: diskDir(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	o, err := own(context.Background(), l)
	if err != nil {
		b.Fatal(err)
	}
	const n = 20_000
	var wg sync.WaitGroup
	limit := make(chan struct{}, 256)
	for range n {
		obj, err := o.batch(benchSize)
		if err != nil {
			b.Fatal(err)
		}
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			if err := l.Append(context.Background(), o.root.Instance, obj); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	for b.Loop() {
		seen := 0
		for _, err := range l.Read(context.Background(), o.root.Instance, log.Key{}) {
			if err != nil {
				b.Fatal(err)
			}
			seen++
		}
		if seen != n+1 {
			b.Fatal(seen)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/object")
}

// BenchmarkVerify is the fence: what it costs to read the root now.
func BenchmarkVerify(b *testing.B) {
	l, err := fs.Open(context.Background(), fs.Options{Dir: diskDir(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	o, err := own(context.Background(), l)
	if err != nil {
		b.Fatal(err)
	}
	c := log.Check{Instance: o.root.Instance, Epoch: o.root.Epoch, Claim: o.root.Claim}
	for b.Loop() {
		if err := l.Verify(context.Background(), c); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDepth appends objects as a transactor under load does: each of 128 transactions, so many in flight.
func BenchmarkDepth(b *testing.B) {
	for _, compress := range []bool{false, true} {
		for _, depth := range []int{1, 2, 3, 4, 8} {
			b.Run(fmt.Sprintf("compress=%v/depth=%d", compress, depth), func(b *testing.B) {
				c := &counting{}
				l, err := fs.Open(context.Background(), fs.Options{Dir: diskDir(b), FS: c})
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				o, err := own(context.Background(), l)
				if err != nil {
					b.Fatal(err)
				}
				limit := make(chan struct{}, depth)
				var wg sync.WaitGroup
				c.syncs.Store(0)
				b.ResetTimer()
				for range b.N {
					limit <- struct{}{}
					obj, err := o.many(128, benchSize, compress)
					if err != nil {
						b.Fatal(err)
					}
					wg.Go(func() {
						defer func() { <-limit }()
						if err := l.Append(context.Background(), o.root.Instance, obj); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)*128/b.Elapsed().Seconds(), "tx/s")
				b.ReportMetric(float64(b.N)/float64(c.syncs.Load()), "objects/fdatasync")
			})
		}
	}
}
