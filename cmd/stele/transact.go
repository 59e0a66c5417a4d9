package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/transactor"
	"github.com/steledb/stele/tx"
)

type transactCmd struct {
	Store     string        `required:"" placeholder:"URL" help:"The database, which is made if there is none: ${stores}."`
	AtomicPer string        `enum:"form,file" default:"form" help:"form: each top-level vector, list or map is a transaction; file: each file is one (${enum})."`
	Format    string        `enum:"auto,edn,json" default:"auto" help:"The input's notation; auto goes by the file's name, and takes standard input for EDN (${enum})."`
	Wait      time.Duration `default:"30s" help:"How long to wait for another owner of the database."`
	Quiet     bool          `short:"q" help:"Show no progress."`
	Files     []string      `arg:"" optional:"" name:"file" help:"Files to transact, in this order; - is standard input, which is also what is read without any. What ends in .gz is uncompressed."`
}

func (transactCmd) Help() string {
	return `Files written for Datomic load as they are. Transactions are committed in order, many in flight; at the first that is refused
nothing behind it is committed, and standard error names its file, line, form and the reason. What was committed before stays.`
}

// window is how many transactions are kept in flight.
const window = 1024

func (c *transactCmd) Run(ctx context.Context, s *streams) error {
	if len(c.Files) == 0 {
		c.Files = []string{"-"}
	}
	inputs := make([]*input, len(c.Files))
	for i, name := range c.Files { // before anything is committed
		in, err := c.open(ctx, name, s)
		if err != nil {
			return err
		}
		defer in.close()
		inputs[i] = in
	}
	waiting, cancel := context.WithTimeout(ctx, c.Wait)
	x, err := config.Open(waiting, c.Store, transactor.Options{Logger: s.logger()})
	cancel()
	if err != nil {
		return err
	}
	l := &load{x: x, began: time.Now(), bar: c.bar(s, inputs)}
	err = l.all(ctx, inputs, c.AtomicPer == "file")
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	closeErr := x.Close(closing)
	l.bar.Exit()
	fmt.Fprintln(s.out, l.summary())
	return errors.Join(err, closeErr)
}

// input is one file to be read.
type input struct {
	name   string
	json   bool
	reader io.Reader
	close  func() error
	size   int64 // bytes as stored; -1: not known
	read   int64 // of these
}

func (in *input) Read(b []byte) (int, error) {
	n, err := in.reader.Read(b)
	in.read += int64(n)
	return n, err
}

func (c *transactCmd) open(ctx context.Context, name string, s *streams) (*input, error) {
	in := &input{name: name, reader: s.in, close: func() error { return nil }, size: -1}
	if name == "-" {
		in.name, in.reader = "standard input", interruptible(ctx, s.in)
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err != nil || info.IsDir() {
			f.Close()
			return nil, errors.Join(err, fmt.Errorf("%s is a directory, not a file", name))
		}
		if info.Mode().IsRegular() {
			in.size = info.Size()
		}
		in.reader, in.close = f, f.Close
	}
	plain := strings.TrimSuffix(name, ".gz")
	in.json = c.Format == "json" || c.Format == "auto" && strings.HasSuffix(plain, ".json")
	return in, nil
}

// interruptible is r, whose reading ends with ctx although nobody may ever write again.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()) })
	return &ended{ctx, out}
}

// ended says of a pipe that was closed because ctx ended that it was that.
type ended struct {
	ctx context.Context
	r   io.Reader
}

func (e *ended) Read(b []byte) (int, error) {
	n, err := e.r.Read(b)
	if err != nil && err != io.EOF && e.ctx.Err() != nil {
		err = e.ctx.Err()
	}
	return n, err
}

// transactions reads the input, one transaction after the other, or all of it as one.
func (in *input) transactions(whole bool) iter.Seq2[tx.Input, error] {
	return func(yield func(tx.Input, error) bool) {
		var r io.Reader = bufio.NewReaderSize(in, 1<<16)
		if strings.HasSuffix(in.name, ".gz") {
			z, err := gzip.NewReader(r)
			if err != nil {
				yield(tx.Input{}, err)
				return
			}
			defer z.Close()
			r = z
		}
		read := tx.ReadEDN
		if in.json {
			read = tx.ReadJSON
		}
		all := tx.Input{N: 1}
		for t, err := range read(r, tx.ReadLimits{}) {
			switch {
			case err != nil:
				yield(t, err)
				return
			case whole:
				all.Data = append(all.Data, t.Data...)
			case !yield(t, nil):
				return
			}
		}
		if whole && len(all.Data) > 0 {
			yield(all, nil)
		}
	}
}

// load keeps a stream of transactions in flight, each behind the one before it.
type load struct {
	x     *transactor.Transactor
	began time.Time
	bar   *progressbar.ProgressBar

	inFlight     []sent
	last         *transactor.Future
	read         int64 // bytes, as the bar has it
	transactions int
	datoms       int
	notices      map[string]bool
}

// sent is a transaction in flight and where it came from.
type sent struct {
	future *transactor.Future
	file   string
	input  tx.Input
}

func (l *load) all(ctx context.Context, inputs []*input, whole bool) error {
	for _, in := range inputs {
		for t, err := range in.transactions(whole) {
			if err != nil {
				// What was read before it is good, and a refusal among that came first.
				return errors.Join(l.drain(ctx, 0), where(in.name, t, err))
			}
			if err := l.submit(ctx, in.name, t); err != nil {
				return err
			}
			l.bar.Add64(in.read - l.read)
			l.read = in.read
		}
		l.read = 0
		if err := in.close(); err != nil {
			return err
		}
	}
	return l.drain(ctx, 0)
}

// submit sends one transaction, waiting for older ones while the queue or the window is full.
func (l *load) submit(ctx context.Context, file string, t tx.Input) error {
	for {
		if err := l.drain(ctx, window-1); err != nil {
			return err
		}
		f, err := l.x.Submit(ctx, t.Data, transactor.TxOptions{After: l.last})
		switch {
		case err == nil:
			l.last = f
			l.inFlight = append(l.inFlight, sent{f, file, tx.Input{N: t.N, Pos: t.Pos}})
			return nil
		case errors.Is(err, transactor.ErrBusy) && len(l.inFlight) > 0:
			if err := l.drain(ctx, len(l.inFlight)-1); err != nil {
				return err
			}
		default:
			if drained := l.drain(ctx, 0); drained != nil {
				return drained // an earlier one was refused
			}
			return where(file, t, err)
		}
	}
}

// drain waits until at most so many are in flight, and counts what was committed.
func (l *load) drain(ctx context.Context, most int) error {
	for len(l.inFlight) > most {
		s := l.inFlight[0]
		r, err := s.future.Wait(ctx)
		if err != nil {
			return where(s.file, s.input, err)
		}
		l.inFlight = l.inFlight[1:]
		l.transactions++
		l.datoms += len(r.TxData)
		l.note(r.Notices)
	}
	return nil
}

// note shows each notice once.
func (l *load) note(notices []string) {
	for _, n := range notices {
		if !l.notices[n] {
			if l.notices == nil {
				l.notices = make(map[string]bool)
			}
			l.notices[n] = true
			progressbar.Bprintln(l.bar, "note: "+n)
		}
	}
}

// where says at which place of which file an error happened.
func where(file string, t tx.Input, err error) error {
	place := fmt.Sprintf("%s: transaction %d", file, t.N)
	var refusal *tx.Error
	if !errors.As(err, &refusal) {
		if t.Pos.Line > 0 {
			place += fmt.Sprintf(" at line %d", t.Pos.Line)
		}
		return fmt.Errorf("%s: %w", place, err)
	}
	pos := refusal.Pos
	if pos.Line == 0 {
		pos.Line, pos.Column = t.Pos.Line, t.Pos.Column
	}
	if pos.Line > 0 {
		place = fmt.Sprintf("%s: line %d: transaction %d", file, pos.Line, t.N)
	}
	if pos.Form > 0 {
		place += fmt.Sprintf(", form %d", pos.Form)
	}
	return fmt.Errorf("%s: %w", place, err)
}

func (l *load) summary() string {
	seconds := time.Since(l.began).Seconds()
	return fmt.Sprintf("%d transactions, %d datoms, %.3f seconds, %.0f datoms/s", l.transactions, l.datoms, seconds, float64(l.datoms)/seconds)
}

// bar shows how much of the files has been read, or how much of an input whose size is not known.
func (c *transactCmd) bar(s *streams, inputs []*input) *progressbar.ProgressBar {
	total := int64(0)
	for _, in := range inputs {
		if in.size < 0 {
			total = -1
			break
		}
		total += in.size
	}
	f, ok := s.err.(*os.File)
	visible := !c.Quiet && ok && isTerminal(f)
	return progressbar.NewOptions64(total, progressbar.OptionSetWriter(s.err), progressbar.OptionSetVisibility(visible),
		progressbar.OptionShowBytes(true), progressbar.OptionSetDescription("transacting"), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish())
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
