package logtest_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/logtest"
	"github.com/steledb/stele/log/mem"
)

// breakage names the sentence of the contract that TestSuite's store breaks.
const breakage = "STELE_BROKEN_STORE"

// TestSuite runs the suite on a store in memory, or on one that TestEveryCaseNotices asks for, which breaks a sentence of the contract.
func TestSuite(t *testing.T) {
	broken, ok := breakages[os.Getenv(breakage)]
	logtest.Run(t, logtest.Backend{Name: "mem " + os.Getenv(breakage), New: func(t *testing.T) func() log.Log {
		s := mem.NewServer()
		shared := &shared{hidden: map[log.Key]int{}, late: map[place]bool{}, highest: map[log.ID]log.Key{}}
		return func() log.Log {
			l := log.Log(s.Open("main", mem.Options{}))
			if ok {
				l = broken.store(base{l, shared})
			}
			return l
		}
	}})
}

// TestEveryCaseNotices runs cases of the suite against a broken store, and sees each of them fail; and every case of the suite is among them.
func TestEveryCaseNotices(t *testing.T) {
	failed := map[string]bool{}
	t.Run("stores", func(t *testing.T) {
		for name, broken := range breakages {
			cases := strings.Fields(broken.cases)
			for _, c := range cases {
				failed[c] = true
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for try := 1; ; try++ { // a case that races may be lucky
					out := runBroken(t, name, cases)
					cases = slices.DeleteFunc(cases, func(c string) bool { return strings.Contains(out, "--- FAIL: TestSuite/"+c+" (") })
					if len(cases) == 0 {
						return
					}
					if try == 10 {
						t.Fatalf("these do not notice: %v", cases)
					}
				}
			})
		}
	})
	names := logtest.CaseNames()
	for _, c := range names {
		if !failed[c] {
			t.Errorf("no store here makes %s fail", c)
		}
	}
	for c := range failed {
		if !slices.Contains(names, c) {
			t.Errorf("there is no case %s", c)
		}
	}
}

// runBroken runs cases against a broken store and returns what they print.
func runBroken(t *testing.T, name string, cases []string) string {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestSuite$/^("+strings.Join(cases, "|")+")$", "-test.timeout", "60s", "-test.v")
	cmd.Env = append(os.Environ(), breakage+"="+name)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out)
}

// place is where an object lies.
type place struct {
	inst log.ID
	key  log.Key
}

// shared is what the handles of one broken store know together.
type shared struct {
	mu      sync.Mutex
	hidden  map[log.Key]int
	late    map[place]bool
	highest map[log.ID]log.Key
	kept    *log.Root
	stale   *log.Root
	staleAt any // the handle that wrote what came after
	calls   int
	reading sync.RWMutex
	locked  bool
	refused atomic.Bool // somebody was told that it is locked
}

// every counts a call, and reports whether it is the n-th, 2n-th, ….
func (s *shared) every(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return s.calls%n == 0
}

// base is what a broken store is made of.
type base struct {
	log.Log
	*shared
}

// broken is a store that breaks a sentence of the contract, and the cases that must notice.
type broken struct {
	store func(base) log.Log
	cases string
}

var breakages = map[string]broken{
	"append checks, then writes":         {func(b base) log.Log { return overwrites{b} }, "Append_OneOfSixteenWins"},
	"append again is a conflict":         {func(b base) log.Log { return notIdempotent{b} }, "Append_IsIdempotent Append_TheSameSixteenTimes"},
	"append is shown later":              {func(b base) log.Log { return shownLater{b} }, "Append_ShownAtOnceEverywhere Append_InAnyOrder"},
	"append ignores the instance":        {func(b base) log.Log { return oneInstance{b} }, "Append_KeepsInstancesApart"},
	"append and verify at the same time": {func(b base) log.Log { return verifiesFirst{b} }, "AppendVerify_InThisOrder Chain_L5_ZombiesOfEveryEpoch Chain_L3_FrozenWriterWakes"},
	"one append in seven is lost":        {func(b base) log.Log { return loses{b} }, "Append_ConcurrentlyToDepth Copy_L8_BesideAnOwner"},
	"an object of a megabyte is lost":    {func(b base) log.Log { return small{b} }, "Append_LargeAndCompressed"},
	"what lands late is not listed":      {func(b base) log.Log { return byArrival{b} }, "Append_InAnyOrder Chain_L5_EveryOrderOfLanding Chain_L8_ReaderBesideTakeovers"},
	"a context that ends is a rejection": {func(b base) log.Log { return rejects{b} }, "Context_EndsWhileAppending"},
	"verify ignores the claim":           {func(b base) log.Log { return anyClaim{b} }, "Verify_Verdicts"},
	"verify says yes":                    {func(b base) log.Log { return verifiesAll{b} }, "Chain_L3_FrozenWriterWakes Delete_LeavesATombstone CompareAndSwap_Tombstone"},
	"verify looks for what is sealed":    {func(b base) log.Log { return sealedToo{b} }, "Verify_SealedKeysMayBeGone"},
	"no root is not found":               {func(b base) log.Log { return otherNone{b} }, "Root_NoneIsErrNoRoot"},
	"a root is the caller's too":         {func(b base) log.Log { return sharesRoots{b} }, "Root_BelongsToTheCaller"},
	"a root from a replica":              {func(b base) log.Log { return &replica{b} }, "CompareAndSwap_ShownAtOnceEverywhere"},
	"a root without its lease":           {func(b base) log.Log { return losesLease{b} }, "Root_HoldsEveryField Delete_HeedsItsOwner"},
	"a clock that stops now and then":    {func(b base) log.Log { return stopped{b} }, "RootAge"},
	"create says yes":                    {func(b base) log.Log { return createsAll{b} }, "CompareAndSwap_CreateIsCreateOnly Create_OneOfSixteenWins"},
	"create begins at epoch 0":           {func(b base) log.Log { return noEpoch{b} }, "Copy_IsTheSameLog Copy_InterruptedLeavesNoDatabase"},
	"swap compares versions only":        {func(b base) log.Log { return versionsOnly{b} }, "CompareAndSwap_OldMustBeTheRoot"},
	"swap sets the version":              {func(b base) log.Log { return setsVersion{b} }, "CompareAndSwap_VersionsFollow"},
	"swap says yes":                      {func(b base) log.Log { return swapsAll{b} }, "CompareAndSwap_OneOfSixteenWins Chain_L3_FrozenWriterWakes"},
	"a tombstone is no root":             {func(b base) log.Log { return hidesTombstones{b} }, "CompareAndSwap_Tombstone Delete_LeavesATombstone Create_OverATombstone"},
	"list includes its bound":            {func(b base) log.Log { return inclusive{b} }, "Read_OrderAndRange"},
	"list ends at the root's epoch":      {func(b base) log.Log { return upToRoot{b} }, "Open_L11_ARootOfAnOlderState Open_L11_ObjectsAboveTheRootsEpoch"},
	"list forgets what it has shown":     {func(b base) log.Log { return forgets{b} }, "Read_NeverMissesWhatItHasShown"},
	"read in the order of landing":       {func(b base) log.Log { return unordered{b} }, "Read_OrderAndRange Chain_ReopenedIsTheSame Chain_L8_ReaderBesideTakeovers Adopt_ThenGoOn"},
	"read goes on behind an error":       {func(b base) log.Log { return goesOn{b} }, "Context_EndsWhileReading"},
	"a root waits for readings":          {func(b base) log.Log { return waits{b} }, "RootAge_WaitsForNobody"},
	"read stops at a thousand":           {func(b base) log.Log { return stops{b} }, "Read_TenThousandObjects"},
	"read holds up appends":              {func(b base) log.Log { return blocks{b} }, "Read_NeverBlocksAnAppend"},
	"delete takes one too many":          {func(b base) log.Log { return deletesMore{b} }, "Delete_RemovesNothingElse Verify_SealedKeysMayBeGone"},
	"delete leaves blobs":                {func(b base) log.Log { return keepsBlobs{b} }, "Delete_Everything Delete_LeavesATombstone Delete_GoesOnWhereItStopped Create_OverATombstone"},
	"put changes what it was given":      {func(b base) log.Log { return clearsBlobs{b} }, "Blob_WriteOnce"},
	"lock refuses whom it need not":      {func(b base) log.Log { return &locks{base: b} }, "Lock_GuardsOwnership Lock_WaitsUntilItIsGivenBack Lock_EndsWithTheHandle"},
	"adopt cuts the head off":            {func(b base) log.Log { return cuts{b} }, "Adopt_ThenGoOn"},
	"info without a depth":               {func(b base) log.Log { return depthless{b} }, "Info_SaysWhatItIs"},
	"get ignores the context":            {func(b base) log.Log { return deaf{b} }, "Context_EveryMethodReturns"},
	"close does nothing":                 {func(b base) log.Log { return unclosed{b} }, "Close_LaterCallsFail"},
	"close says nothing of itself":       {func(b base) log.Log { return anonymous{b} }, "Close_EndsCallsUnderWay"},
}

type overwrites struct{ base }

func (l overwrites) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	if have, err := l.Get(ctx, inst, o.Key()); err == nil && have.Hash() != o.Hash() {
		return log.ErrConflict
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for range 100 {
		runtime.Gosched()
	}
	l.Log.(*mem.Log).Replace(inst, o)
	return nil
}

func (l overwrites) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (error, error) {
	return l.Append(ctx, c.Instance, o), l.Verify(ctx, c)
}

type notIdempotent struct{ base }

func (l notIdempotent) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	if _, err := l.Get(ctx, inst, o.Key()); err == nil {
		return log.ErrConflict
	}
	return l.Log.Append(ctx, inst, o)
}

// shownLater: a listing lacks an object the first time.
type shownLater struct{ base }

func (l shownLater) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return func(yield func(log.Key, error) bool) {
		for k, err := range l.Log.List(ctx, inst, after) {
			l.mu.Lock()
			l.hidden[k]++
			first := l.hidden[k] == 1
			l.mu.Unlock()
			if !first && !yield(k, err) {
				return
			}
		}
	}
}

type oneInstance struct{ base }

func (l oneInstance) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	return l.Log.Append(ctx, log.ID{}, o)
}
func (l oneInstance) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (error, error) {
	return l.Append(ctx, c.Instance, o), l.Verify(ctx, c)
}
func (l oneInstance) Get(ctx context.Context, inst log.ID, k log.Key) (*log.Object, error) {
	return l.Log.Get(ctx, log.ID{}, k)
}
func (l oneInstance) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return l.Log.Read(ctx, log.ID{}, after)
}
func (l oneInstance) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return l.Log.List(ctx, log.ID{}, after)
}
func (l oneInstance) Verify(ctx context.Context, c log.Check) error {
	c.Keys = nil
	return l.Log.Verify(ctx, c)
}

type verifiesFirst struct{ base }

func (l verifiesFirst) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (error, error) {
	verr := l.Verify(ctx, c)
	if verr != nil {
		return verr, verr
	}
	return l.Append(ctx, c.Instance, o), nil
}

type anyClaim struct{ base }

func (l anyClaim) Verify(ctx context.Context, c log.Check) error {
	r, err := l.Root(ctx)
	if err == nil {
		c.Claim = r.Claim
	}
	return l.Log.Verify(ctx, c)
}

type versionsOnly struct{ base }

func (l versionsOnly) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	if r, err := l.Root(ctx); err == nil && old != nil && r.Version == old.Version {
		old = r
	}
	return l.Log.CompareAndSwap(ctx, old, next)
}

type losesLease struct{ base }

func (l losesLease) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	n := next.Clone()
	n.Lease = 0
	return l.Log.CompareAndSwap(ctx, old, n)
}

type inclusive struct{ base }

func (l inclusive) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	if after.FirstT > 0 {
		after.FirstT--
	}
	return l.Log.List(ctx, inst, after)
}

type unordered struct{ base }

func (l unordered) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		var all []*log.Object
		for o, err := range l.Log.Read(ctx, inst, after) {
			if err != nil {
				yield(nil, err)
				return
			}
			all = append(all, o)
		}
		slices.Reverse(all)
		for _, o := range all {
			if !yield(o, nil) {
				return
			}
		}
	}
}

type stops struct{ base }

func (l stops) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		n := 0
		for o, err := range l.Log.Read(ctx, inst, after) {
			if n++; n > 1000 || !yield(o, err) {
				return
			}
		}
	}
}

type deletesMore struct{ base }

func (l deletesMore) Delete(ctx context.Context, inst log.ID, upTo log.Key) error {
	for k := range l.List(ctx, inst, upTo) {
		return l.Log.Delete(ctx, inst, k)
	}
	return l.Log.Delete(ctx, inst, upTo)
}

type clearsBlobs struct{ base }

func (l clearsBlobs) PutBlob(ctx context.Context, inst log.ID, name string, b []byte) error {
	defer clear(b)
	return l.Log.PutBlob(ctx, inst, name, b)
}

type deaf struct{ base }

func (l deaf) Get(ctx context.Context, inst log.ID, k log.Key) (*log.Object, error) {
	return l.Log.Get(context.WithoutCancel(ctx), inst, k)
}

type unclosed struct{ base }

func (l unclosed) Close() error { return nil }

type hidesTombstones struct{ base }

func (l hidesTombstones) Root(ctx context.Context) (*log.Root, error) {
	r, err := l.Log.Root(ctx)
	if err == nil && r.Deleted {
		return nil, log.ErrNoRoot
	}
	return r, err
}

type loses struct{ base }

func (l loses) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	if o.Kind == log.KindBatch && l.every(7) {
		return nil
	}
	return l.Log.Append(ctx, inst, o)
}

type small struct{ base }

func (l small) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	if o.Size() > 1<<20 {
		return nil
	}
	return l.Log.Append(ctx, inst, o)
}

// byArrival numbers objects as they arrive, and a listing goes on from the last number: what lands below a key that is there is not shown.
type byArrival struct{ base }

func (l byArrival) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	l.mu.Lock()
	if o.Key().Compare(l.highest[inst]) < 0 {
		l.late[place{inst, o.Key()}] = true
	} else {
		l.highest[inst] = o.Key()
	}
	l.mu.Unlock()
	return l.Log.Append(ctx, inst, o)
}

func (l byArrival) shown(inst log.ID, k log.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.late[place{inst, k}]
}

func (l byArrival) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return func(yield func(log.Key, error) bool) {
		for k, err := range l.Log.List(ctx, inst, after) {
			if l.shown(inst, k) && !yield(k, err) {
				return
			}
		}
	}
}

func (l byArrival) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		for o, err := range l.Log.Read(ctx, inst, after) {
			if (err != nil || l.shown(inst, o.Key())) && !yield(o, err) {
				return
			}
		}
	}
}

type rejects struct{ base }

func (l rejects) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	for range 100 {
		runtime.Gosched()
	}
	err := l.Log.Append(ctx, inst, o)
	if errors.Is(err, context.Canceled) {
		err = log.WithOutcome(log.Rejected, err)
	}
	return err
}

type verifiesAll struct{ base }

func (l verifiesAll) Verify(ctx context.Context, c log.Check) error { return ctx.Err() }
func (l verifiesAll) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (error, error) {
	return l.Append(ctx, c.Instance, o), nil
}

type sealedToo struct{ base }

func (l sealedToo) Verify(ctx context.Context, c log.Check) error {
	for _, k := range c.Keys {
		if _, err := l.Get(ctx, c.Instance, k); errors.Is(err, log.ErrNotFound) {
			return log.ErrRolledBack
		}
	}
	return l.Log.Verify(ctx, c)
}

type otherNone struct{ base }

func (l otherNone) Root(ctx context.Context) (*log.Root, error) {
	r, err := l.Log.Root(ctx)
	if errors.Is(err, log.ErrNoRoot) {
		err = log.ErrNotFound
	}
	return r, err
}

type sharesRoots struct{ base }

func (l sharesRoots) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	err := l.Log.CompareAndSwap(ctx, old, next)
	if err == nil {
		l.mu.Lock()
		l.kept = next
		l.mu.Unlock()
	}
	return err
}

func (l sharesRoots) Root(ctx context.Context) (*log.Root, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept != nil {
		return l.kept, nil
	}
	return l.Log.Root(ctx)
}

// replica: what one handle wrote, others see at their second look.
type replica struct{ base }

func (l *replica) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	err := l.Log.CompareAndSwap(ctx, old, next)
	if err == nil {
		l.mu.Lock()
		l.stale, l.staleAt = old, l
		l.mu.Unlock()
	}
	return err
}

func (l *replica) Root(ctx context.Context) (*log.Root, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.stale; r != nil && l.staleAt != any(l) {
		l.stale = nil
		return r.Clone(), nil
	}
	return l.Log.Root(ctx)
}

type stopped struct{ base }

func (l stopped) RootAge(ctx context.Context) (*log.Root, time.Duration, error) {
	r, age, err := l.Log.RootAge(ctx)
	if l.every(3) {
		age = -1
	}
	return r, age, err
}

type createsAll struct{ base }

func (l createsAll) Root(ctx context.Context) (*log.Root, error) {
	r, err := l.Log.Root(ctx)
	for range 100 {
		runtime.Gosched()
	}
	return r, err
}

func (l createsAll) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	err := l.Log.CompareAndSwap(ctx, old, next)
	if old == nil && errors.Is(err, log.ErrConflict) {
		return nil
	}
	return err
}

type noEpoch struct{ base }

func (l noEpoch) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	if next = next.Clone(); old == nil {
		next.Epoch, next.Claim = 0, log.ID{}
	}
	return l.Log.CompareAndSwap(ctx, old, next)
}

type setsVersion struct{ base }

func (l setsVersion) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	if next = next.Clone(); old != nil {
		next.Version = old.Version + 1
	}
	return l.Log.CompareAndSwap(ctx, old, next)
}

type swapsAll struct{ base }

func (l swapsAll) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	err := l.Log.CompareAndSwap(ctx, old, next)
	if old != nil && errors.Is(err, log.ErrConflict) {
		return nil
	}
	return err
}

type upToRoot struct{ base }

func (l upToRoot) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return func(yield func(log.Key, error) bool) {
		r, err := l.Root(ctx)
		for k, lerr := range l.Log.List(ctx, inst, after) {
			if err == nil && k.Epoch > r.Epoch || !yield(k, lerr) {
				return
			}
		}
	}
}

func (l upToRoot) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		r, err := l.Root(ctx)
		for o, rerr := range l.Log.Read(ctx, inst, after) {
			if err == nil && rerr == nil && o.Epoch > r.Epoch || !yield(o, rerr) {
				return
			}
		}
	}
}

// forgets: every third listing is of a moment ago.
type forgets struct{ base }

func (l forgets) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return func(yield func(log.Key, error) bool) {
		var keys []log.Key
		for k, err := range l.Log.List(ctx, inst, after) {
			if err != nil {
				yield(k, err)
				return
			}
			keys = append(keys, k)
		}
		if l.every(3) && len(keys) > 0 {
			keys = keys[:len(keys)-1]
		}
		for _, k := range keys {
			if !yield(k, nil) {
				return
			}
		}
	}
}

type blocks struct{ base }

func (l blocks) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		l.reading.RLock()
		defer l.reading.RUnlock()
		l.Log.Read(ctx, inst, after)(yield)
	}
}

func (l blocks) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	if !l.reading.TryLock() {
		return errors.New("it would wait for a reading")
	}
	defer l.reading.Unlock()
	return l.Log.Append(ctx, inst, o)
}

type goesOn struct{ base }

func (l goesOn) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		for o, err := range l.Log.Read(ctx, inst, after) {
			if !yield(o, err) || err != nil && !yield(nil, err) {
				return
			}
		}
	}
}

type waits struct{ base }

func (l waits) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return blocks(l).Read(ctx, inst, after)
}

func (l waits) RootAge(ctx context.Context) (*log.Root, time.Duration, error) {
	if !l.reading.TryLock() {
		return nil, 0, errors.New("it would wait for a reading")
	}
	defer l.reading.Unlock()
	return l.Log.RootAge(ctx)
}

type keepsBlobs struct{ base }

func (l keepsBlobs) Delete(ctx context.Context, inst log.ID, upTo log.Key) error {
	if upTo == log.MaxKey {
		upTo.FirstT--
	}
	return l.Log.Delete(ctx, inst, upTo)
}

// locks has a guard that it need not have, which does not wait and does not end with its handle.
type locks struct{ base }

func (l *locks) Lock(ctx context.Context, wait bool) (func() error, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locked {
		l.refused.Store(true)
		return nil, log.ErrOwned
	}
	l.locked = true
	return func() error {
		for end := time.Now().Add(5 * time.Second); !l.refused.Load() && time.Now().Before(end); { // so that whoever waits comes first
			runtime.Gosched()
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.locked = false
		return nil
	}, nil
}

type cuts struct{ base }

func (l cuts) Adopt(ctx context.Context, inst log.ID, head log.Pos, unfenced []*log.Object) ([]string, error) {
	l.Log.(*mem.Log).Remove(inst, head.Key)
	return nil, nil
}

type depthless struct{ base }

func (l depthless) Info() log.Info {
	i := l.Log.Info()
	i.Depth = 0
	return i
}

type anonymous struct{ base }

func (l anonymous) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	for range 100 {
		runtime.Gosched()
	}
	err := l.Log.Append(ctx, inst, o)
	if errors.Is(err, log.ErrClosed) {
		return errors.New("broken pipe")
	}
	return err
}
