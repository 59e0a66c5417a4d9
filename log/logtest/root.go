package logtest

import (
	"strings"
	"time"

	"github.com/steledb/stele/log"
)

var rootCases = []testCase{
	{"Root_NoneIsErrNoRoot", rootNone},
	{"Root_HoldsEveryField", rootFields},
	{"RootAge", rootAge},
	{"RootAge_WaitsForNobody", rootWaitsForNobody},
	{"Root_BelongsToTheCaller", rootBelongsToTheCaller},
	{"CompareAndSwap_CreateIsCreateOnly", casCreate},
	{"CompareAndSwap_OldMustBeTheRoot", casConflict},
	{"CompareAndSwap_VersionsFollow", casVersions},
	{"CompareAndSwap_OneOfSixteenWins", casRace},
	{"CompareAndSwap_ShownAtOnceEverywhere", casLinearizable},
	{"CompareAndSwap_Tombstone", casTombstone},
}

func rootNone(s *suite) {
	l := s.handle()
	_, err := l.Root(s.ctx)
	s.wants(err, log.ErrNoRoot, "the root of nothing")
	r := log.NewRoot()
	s.wants(l.CompareAndSwap(s.ctx, r, r.Next()), log.ErrConflict, "swap where nothing is")
	_, err = l.Root(s.ctx)
	s.wants(err, log.ErrNoRoot, "the root after a swap that failed")
}

// fullRoot sets every field, so that a store that loses one is seen.
func fullRoot() *log.Root {
	r := log.NewRoot()
	r.Epoch, r.Claim = 7, log.NewID()
	r.Owner, r.Endpoint, r.LeaseCounter, r.Lease = "owner, with ü and '", "https://a.example", 3, 10*time.Second
	r.Sealed = log.Sealed{Epoch: 6, FirstT: 10, LastT: 12, Hash: log.Hash{1}}
	r.Chunks, r.Snapshot, r.Collect = "4-a", "4-b", 4
	return r
}

func rootFields(s *suite) {
	l := s.handle()
	r := fullRoot()
	s.must(l.CompareAndSwap(s.ctx, nil, r), "create")
	next := r.Next()
	next.Owner = strings.Repeat("x", log.MaxRootText)
	for i, want := range []*log.Root{r, next} {
		if i > 0 {
			s.must(l.CompareAndSwap(s.ctx, r, want), "swap")
		}
		for _, l := range []log.Log{l, s.handle()} {
			got, err := l.Root(s.ctx)
			s.must(err, "read the root")
			if *got != *want {
				s.Fatalf("the root is %+v, was %+v", got, want)
			}
		}
	}
	bad := next.Next()
	bad.Owner += "x" // too long
	if err := l.CompareAndSwap(s.ctx, next, bad); err == nil {
		s.Fatal("a root that has no encoding was written")
	}
	got, err := l.Root(s.ctx)
	s.must(err, "read the root")
	if *got != *next {
		s.Fatalf("a swap that failed left %+v", got)
	}
}

// rootAge: the age is the store's, of the root that it comes with, and the same for every handle; or negative everywhere.
func rootAge(s *suite) {
	l, other := s.handle(), s.handle()
	_, _, err := l.RootAge(s.ctx)
	s.wants(err, log.ErrNoRoot, "the age of nothing")
	root := log.NewRoot()
	var old *log.Root
	var since time.Time // before root was written
	for range 3 {
		since = time.Now()
		s.must(l.CompareAndSwap(s.ctx, old, root), "swap")
		var last time.Duration
		for _, l := range []log.Log{l, other, l} {
			got, age, err := l.RootAge(s.ctx)
			s.must(err, "the root and its age")
			switch lived := time.Since(since); {
			case *got != *root:
				s.Fatalf("the root is %+v, was %+v", got, root)
			case age < 0 && last <= 0:
				last = -1
			case age < last || last < 0 || age > lived+clockSlack:
				s.Fatalf("the root's age is %v behind %v, %v after it was written", age, last, lived)
			default:
				last = age
			}
		}
		old, root = root, root.Next()
	}
}

// rootWaitsForNobody renews a lease, as it is done, while the same handle appends as much as it may and more, and many of its readings are
// under way. Had it to wait for a reading it would wait for ever.
func rootWaitsForNobody(s *suite) {
	l := s.handle()
	o := s.own(l)
	o.append(o.batches(3)...)
	inst := o.root.Instance
	var reading func(depth int)
	reading = func(depth int) {
		if depth > 0 {
			for _, err := range l.Read(s.ctx, inst, log.Key{}) {
				s.must(err, "read")
				for _, err := range l.List(s.ctx, inst, log.Key{}) {
					s.must(err, "list")
					reading(depth - 1)
					return
				}
			}
			return
		}
		objs := o.batches(4 * l.Info().Depth)
		appended := make(chan []error)
		go func() {
			appended <- inParallel(len(objs), func(i int) error { return l.Append(s.ctx, inst, objs[i]) })
		}()
		for range 10 {
			root, _, err := l.RootAge(s.ctx)
			s.must(err, "the root and its age")
			if *root != *o.root {
				s.Fatalf("the root is %+v, was %+v", root, o.root)
			}
			o.swap(func(r *log.Root) { r.LeaseCounter++ })
		}
		for _, err := range <-appended {
			s.must(err, "append")
		}
	}
	reading(6)
}

// clockSlack is by how much the clock of a store on this machine may run ahead.
const clockSlack = time.Second

func rootBelongsToTheCaller(s *suite) {
	l := s.handle()
	r := log.NewRoot()
	s.must(l.CompareAndSwap(s.ctx, nil, r), "create")
	want := *r
	if want.Version != 1 || want.Owner != "" {
		s.Fatalf("the create changed what it was given to %+v", r)
	}
	r.Owner = "changed behind the store's back"
	got, err := l.Root(s.ctx)
	s.must(err, "read the root")
	if *got != want {
		s.Fatalf("the root is %+v, was %+v", got, want)
	}
	got.Epoch = 99
	again, err := l.Root(s.ctx)
	s.must(err, "read the root")
	if *again != want {
		s.Fatalf("the root is %+v, was %+v", again, want)
	}
}

func casCreate(s *suite) {
	l := s.handle()
	roots := make([]*log.Root, 16)
	handles := make([]log.Log, len(roots))
	for i := range roots {
		roots[i], handles[i] = log.NewRoot(), s.handle()
	}
	errs := inParallel(len(roots), func(i int) error { return handles[i].CompareAndSwap(s.ctx, nil, roots[i]) })
	won := s.oneWinner(errs)
	got, err := l.Root(s.ctx)
	s.must(err, "read the root")
	if *got != *roots[won] {
		s.Fatalf("the root is %+v, its creator wrote %+v", got, roots[won])
	}
}

// oneWinner fails unless one of errs is nil and all others are conflicts.
func (s *suite) oneWinner(errs []error) int {
	s.Helper()
	won := -1
	for i, err := range errs {
		if err == nil && won >= 0 {
			s.Fatalf("%d and %d both won", won, i)
		}
		if err == nil {
			won = i
			continue
		}
		s.wants(err, log.ErrConflict, "who lost")
		if out := log.OutcomeOf(err); out != log.Rejected {
			s.Fatalf("a conflict's outcome is %q", out)
		}
	}
	if won < 0 {
		s.Fatal("nobody won")
	}
	return won
}

func casConflict(s *suite) {
	l := s.handle()
	first := log.NewRoot()
	s.must(l.CompareAndSwap(s.ctx, nil, first), "create")
	s.wants(l.CompareAndSwap(s.ctx, nil, log.NewRoot()), log.ErrConflict, "create again")
	s.wants(l.CompareAndSwap(s.ctx, nil, first), log.ErrConflict, "create the same again")
	second := first.Acquire(log.NewID(), "a")
	s.must(l.CompareAndSwap(s.ctx, first, second), "swap")
	s.wants(l.CompareAndSwap(s.ctx, first, first.Acquire(log.NewID(), "b")), log.ErrConflict, "swap on an older root")
	s.wants(l.CompareAndSwap(s.ctx, first, second), log.ErrConflict, "the same swap again")
	// A root that differs in something else than its version is not the root either.
	wrong := second.Clone()
	wrong.LeaseCounter = 5
	s.wants(l.CompareAndSwap(s.ctx, wrong, wrong.Next()), log.ErrConflict, "swap on a root that never was")
	got, err := l.Root(s.ctx)
	s.must(err, "read the root")
	if *got != *second {
		s.Fatalf("the root is %+v, was %+v", got, second)
	}
}

func casVersions(s *suite) {
	l := s.handle()
	r := log.NewRoot()
	r.Version = 2
	if err := l.CompareAndSwap(s.ctx, nil, r); err == nil {
		s.Fatal("created at version 2")
	}
	r.Version = 1
	s.must(l.CompareAndSwap(s.ctx, nil, r), "create")
	for _, v := range []uint64{0, 1, 3} {
		next := r.Clone()
		next.Version = v
		if err := l.CompareAndSwap(s.ctx, r, next); err == nil {
			s.Fatalf("version %d follows 1", v)
		}
	}
	s.must(l.CompareAndSwap(s.ctx, r, r.Next()), "swap")
}

func casRace(s *suite) {
	const racers, rounds = 16, 8
	handles := make([]log.Log, racers)
	for i := range handles {
		handles[i] = s.handle()
	}
	old := log.NewRoot()
	s.must(handles[0].CompareAndSwap(s.ctx, nil, old), "create")
	for range rounds {
		next := make([]*log.Root, racers)
		for i := range next {
			next[i] = old.Acquire(log.NewID(), "racer")
		}
		won := s.oneWinner(inParallel(racers, func(i int) error { return handles[i].CompareAndSwap(s.ctx, old, next[i]) }))
		got, err := handles[(won+1)%racers].Root(s.ctx)
		s.must(err, "read the root")
		if *got != *next[won] {
			s.Fatalf("the root is %+v, the winner wrote %+v", got, next[won])
		}
		old = got
	}
}

func casLinearizable(s *suite) {
	a, b := s.handle(), s.handle()
	r := log.NewRoot()
	s.must(a.CompareAndSwap(s.ctx, nil, r), "create")
	for i := range 20 {
		next := r.Acquire(log.NewID(), "a")
		s.must(a.CompareAndSwap(s.ctx, r, next), "swap")
		got, err := b.Root(s.ctx)
		s.must(err, "read the root")
		if *got != *next {
			s.Fatalf("round %d: the root is %+v, and %+v had been written", i, got, next)
		}
		s.must(b.Verify(s.ctx, log.Check{Instance: next.Instance, Epoch: next.Epoch, Claim: next.Claim}), "verify elsewhere")
		s.wants(b.Verify(s.ctx, log.Check{Instance: r.Instance, Epoch: r.Epoch, Claim: r.Claim}), log.ErrNotOwner, "verify the older root")
		r, a, b = next, b, a
	}
}

func casTombstone(s *suite) {
	l := s.handle()
	o := s.own(l)
	o.append(o.batch(1))
	tomb := o.root.Tombstone()
	s.must(l.CompareAndSwap(s.ctx, o.root, tomb), "delete")
	got, err := l.Root(s.ctx)
	s.must(err, "a tombstone is a root like any")
	if *got != *tomb {
		s.Fatalf("the root is %+v, was %+v", got, tomb)
	}
	s.wants(l.Verify(s.ctx, o.check()), log.ErrNotOwner, "verify against a tombstone")
	s.must(l.Delete(s.ctx, tomb.Instance, log.MaxKey), "delete the objects")
	if keys := s.keys(s.ctx, l, tomb.Instance, log.Key{}); len(keys) > 0 {
		s.Fatalf("%v are still there", keys)
	}
	s.wants(l.CompareAndSwap(s.ctx, nil, log.NewRoot()), log.ErrConflict, "create where a tombstone is")
	again := tomb.Recreate()
	s.must(l.CompareAndSwap(s.ctx, tomb, again), "create on the tombstone")
	o.release()
	p := s.own(l)
	if p.root.Epoch != 1 || p.root.Instance == tomb.Instance || len(p.chain) != 1 {
		s.Fatalf("the new database begins with %+v and %d objects", p.root, len(p.chain))
	}
}
