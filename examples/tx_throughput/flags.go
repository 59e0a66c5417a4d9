package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// settings are what the command line says.
type settings struct {
	store        string // "": a fresh directory on a local disk
	levels       []int
	duration     time.Duration // of a level, if transactions is 0
	transactions int
	shape        string
	datoms       int
	preload      int
	maxBatch     int
	maxBatchSize int
	depth        int
	json         bool
	floor        bool
	rounds       int
	accept       bool
	cpuProfile   string
	delay        time.Duration // of the network, each way
	pressure     bool
	queue        int // transactions; 0: enough for all clients
}

const (
	shapeInsert = "insert"
	shapeUpdate = "update"

	maxClients  = 10_000
	maxDatoms   = 1_000
	maxPreload  = 1 << 26
	maxDuration = time.Hour
	maxLevels   = 1_000 // fewer than preloadLevel
)

// parseFlags reads the arguments. Anything wrong is printed, all of it at once, with the usage; -h prints the usage and is flag.ErrHelp.
func parseFlags(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{}
	var levels string
	f := flag.NewFlagSet("tx_throughput", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "usage: tx_throughput [flags]\n\nMeasures transactions per second and their latency in a closed loop.\n\n")
		f.PrintDefaults()
	}
	f.StringVar(&s.store, "store", "", "`URL` of the store, such as fs:DIR, mem:NAME?delay=2ms, postgres://… or s3://bucket/prefix?endpoint=… (default a fresh directory on a local disk)")
	f.DurationVar(&s.delay, "delay", 0, "speak with the store through a proxy that delays each direction so much (postgres and s3)")
	f.StringVar(&levels, "concurrency", "1,4,16,64,256", "`list` of numbers of clients")
	f.DurationVar(&s.duration, "duration", 5*time.Second, "how long to measure each level")
	f.IntVar(&s.transactions, "transactions", 0, "measure `N` transactions at each level, instead of -duration")
	f.StringVar(&s.shape, "shape", shapeInsert, "insert a new entity, or update an old one")
	f.IntVar(&s.datoms, "datoms", 2, "datoms of each transaction, beside its instant; even for updates")
	f.IntVar(&s.preload, "preload", 0, "`entities` to load before (default 100000 for updates)")
	f.IntVar(&s.maxBatch, "max-batch", 0, "`transactions` that a batch takes at most (default the library's)")
	f.IntVar(&s.maxBatchSize, "max-batch-bytes", 0, "`bytes` that a batch takes at most (default the library's)")
	f.IntVar(&s.depth, "depth", 0, "`flushes` in flight at most (default the backend's)")
	f.BoolVar(&s.json, "json", false, "print a JSON object for each level instead of a table")
	f.BoolVar(&s.floor, "floor", false, "also measure the log alone, and the library without goroutines")
	f.IntVar(&s.rounds, "rounds", 1, "run the levels so many times in turn and print medians")
	f.BoolVar(&s.accept, "accept", false, "measure the promised ratios and say whether they hold: of mem and fs, or of the network store that -store names (takes also -duration and -json)")
	f.BoolVar(&s.pressure, "pressure", false, "offer four times what the transactor can do, and read while its store hangs, and say whether the promised ratios hold (takes -duration, of the overload, and -json)")
	f.StringVar(&s.cpuProfile, "cpuprofile", "", "write a CPU profile of the measured loop to `file`; takes a single level and round")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })

	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	within := func(name string, n, least, most int) {
		if n < least || n > most {
			wrong("-%s is %d; it must be from %d to %d", name, n, least, most)
		}
	}
	if f.NArg() > 0 {
		wrong("%q is not a flag; there are no other arguments", f.Arg(0))
	}
	for _, l := range strings.Split(levels, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(l))
		if err != nil || n < 1 || n > maxClients {
			wrong("-concurrency is %q; it must be numbers from 1 to %d with commas between", levels, maxClients)
			break
		}
		s.levels = append(s.levels, n)
	}
	if s.duration <= 0 || s.duration > maxDuration {
		wrong("-duration is %s; it must be above 0 and at most %s", s.duration, maxDuration)
	}
	if given["transactions"] {
		within("transactions", s.transactions, 1, 1<<40)
		if given["duration"] {
			wrong("-duration and -transactions exclude one another")
		}
	}
	within("datoms", s.datoms, 1, maxDatoms)
	switch s.shape {
	case shapeInsert:
	case shapeUpdate:
		if s.datoms%2 != 0 {
			wrong("-datoms is %d; an update of a text is two datoms, so it must be even", s.datoms)
		}
		if !given["preload"] {
			s.preload = 100_000
		} else if s.preload == 0 {
			wrong("-preload is 0; updates need entities to update")
		}
	default:
		wrong("-shape is %q; it must be %s or %s", s.shape, shapeInsert, shapeUpdate)
	}
	within("preload", s.preload, 0, maxPreload)
	if given["max-batch"] {
		within("max-batch", s.maxBatch, 1, 1<<20)
	}
	if given["max-batch-bytes"] {
		within("max-batch-bytes", s.maxBatchSize, 1, 64<<20)
	}
	if given["depth"] {
		within("depth", s.depth, 1, 1024)
	}
	scheme, _, _ := strings.Cut(s.store, ":")
	far := scheme == "postgres" || scheme == "postgresql" || scheme == "s3"
	if s.delay != 0 && !far {
		wrong("-delay is for a store behind a network, postgres://… or s3://…; mem takes a delay in its URL")
	}
	if s.accept && s.store != "" && !far {
		wrong("-accept measures mem and a local disk by itself; what -store may name is a store behind a network, postgres://… or s3://…")
	}
	if s.delay < 0 || s.delay > time.Second {
		wrong("-delay is %s; it must be from 0 to 1s", s.delay)
	}
	within("rounds", s.rounds, 1, 99)
	if n := len(s.levels) * s.rounds; n > maxLevels {
		wrong("-concurrency and -rounds make %d levels; at most %d are possible", n, maxLevels)
	}
	if s.cpuProfile != "" && (len(s.levels) > 1 || s.rounds > 1 || s.accept) {
		wrong("-cpuprofile profiles one loop: give a single -concurrency, and neither -rounds nor -accept")
	}
	if s.accept {
		for name := range given {
			if name != "accept" && name != "duration" && name != "json" && name != "store" {
				wrong("-accept measures what it must, and takes no -%s", name)
			}
		}
		if !given["duration"] {
			s.duration = 3 * time.Second
		}
	}
	if s.pressure {
		for name := range given {
			if name != "pressure" && name != "duration" && name != "json" {
				wrong("-pressure measures what it must, and takes no -%s", name)
			}
		}
		if !given["duration"] {
			s.duration = time.Minute
		}
	}
	if len(errs) > 0 {
		err := errors.Join(errs...)
		fmt.Fprintf(stderr, "%v\n\n", err)
		f.Usage()
		return nil, err
	}
	return s, nil
}
