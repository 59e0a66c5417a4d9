package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/transactor"
	"github.com/steledb/stele/tx"
)

// schema: every transaction of a client makes an entity of its own with a mark, which is not unique: were a transaction to be in the log twice, its mark
// would be. Registers are entities by name, with a value.
var schema = tx.Data{
	tx.Map{"db/ident": datom.Keyword("m/op"), "db/valueType": datom.Keyword("db.type/string"), "db/cardinality": datom.Keyword("db.cardinality/one")},
	tx.Map{"db/ident": datom.Keyword("r/id"), "db/valueType": datom.Keyword("db.type/string"), "db/cardinality": datom.Keyword("db.cardinality/one"),
		"db/unique": datom.Keyword("db.unique/identity")},
	tx.Map{"db/ident": datom.Keyword("r/v"), "db/valueType": datom.Keyword("db.type/long"), "db/cardinality": datom.Keyword("db.cardinality/one")},
}

// registers is how many there are.
const registers = 3

func registerData() []tx.Data {
	var data tx.Data
	for r := range registers {
		data = append(data, tx.Map{"r/id": registerName(r), "r/v": int64(0)})
	}
	return []tx.Data{data}
}

func registerName(r int) string { return fmt.Sprintf("r%d", r) }

// op is one transaction that a client has submitted.
type op struct {
	mark   string // of its entity, unless it repeats another's
	p      *proc
	after  *op
	future *transactor.Future
	key    *key
	bad    bool          // refused whatever the database holds
	schema datom.Keyword // the attribute that it makes, if any
	reg    int           // its register, or -1
	cas    bool
	old    int64
	value  int64

	// Guarded by w.mu until done is closed.
	call, ret int64
	done      chan struct{}
	admitted  bool
	err       error
	lost      bool // its process died before it was answered
	t         uint64
	repeated  bool
	tempid    datom.ID
}

func (o *op) String() string { return fmt.Sprintf("%s at %s", o.mark, o.p.name) }

// key is an idempotency key and the requests that were made under it, by their marks.
type key struct {
	name  string
	marks []string
	tried []*op
}

// client lets a client do something.
func (w *world) client() {
	p := some(w, w.procs, w.working)
	if p == nil {
		return
	}
	switch w.pick([]int{8, 6, 6, 2, 3, 1, 4, 3}) {
	case 0:
		w.stream(p)
	case 1:
		w.change(p)
	case 2:
		w.keyed(p)
	case 3:
		w.submit(p, w.newOp(p, "bad"), badData(), transactor.TxOptions{})
	case 4:
		w.await(p)
	case 5:
		o := w.newOp(p, "schema")
		o.schema = datom.Keyword("x/" + o.mark)
		w.submit(p, o, tx.Data{tx.Map{"db/ident": o.schema, "db/valueType": datom.Keyword("db.type/long"),
			"db/cardinality": datom.Keyword("db.cardinality/one")}}, transactor.TxOptions{})
	case 6:
		w.sync(p)
	case 7:
		w.lookAt(p)
	}
}

// newOp is a transaction under a new mark.
func (w *world) newOp(p *proc, kind string) *op {
	w.names++
	return &op{mark: fmt.Sprintf("%s%d", kind, w.names), p: p, reg: -1, bad: kind == "bad", done: make(chan struct{})}
}

func badData() tx.Data { return tx.Data{tx.CAS(register(0), "r/v", int64(-5), int64(-6))} }

func register(r int) tx.Lookup { return tx.Lookup{Attr: "r/id", Value: registerName(r)} }

// stream submits some transactions one behind the other, without waiting; some only if the one before commits.
func (w *world) stream(p *proc) {
	chained := w.one(2)
	var last *op
	for range 1 + w.rng.IntN(5) {
		kind := "tx"
		if w.one(6) {
			kind = "bad"
		}
		o := w.newOp(p, kind)
		var opt transactor.TxOptions
		if chained && last != nil && last.future != nil && !w.one(4) {
			o.after, opt.After = last, last.future
		}
		var data tx.Data
		if o.bad {
			data = badData()
		}
		w.submit(p, o, data, opt)
		last = o
	}
}

func (w *world) insert(p *proc) *op {
	o := w.newOp(p, "tx")
	if w.submit(p, o, nil, transactor.TxOptions{}); o.future == nil {
		return nil
	}
	return o
}

// change writes a register, or compares and swaps it.
func (w *world) change(p *proc) {
	o := w.newOp(p, "reg")
	o.reg = w.rng.IntN(registers)
	w.values++
	o.value = w.values
	if o.cas = !w.one(3); o.cas {
		w.mu.Lock()
		o.old = w.regs[o.reg]
		w.mu.Unlock()
		if w.one(5) && o.value > 1 {
			o.old = w.rng.Int64N(o.value)
		}
		w.submit(p, o, tx.Data{tx.CAS(register(o.reg), "r/v", o.old, o.value)}, transactor.TxOptions{})
		return
	}
	w.submit(p, o, tx.Data{tx.Map{"r/id": registerName(o.reg), "r/v": o.value}}, transactor.TxOptions{})
}

// keyed submits a transaction with an idempotency key: a new one, or one that was submitted before, whatever has become of that; sometimes with other
// data, sometimes twice in a row.
func (w *world) keyed(p *proc) {
	var k *key
	if len(w.keys) > 0 && !w.one(3) {
		k = w.keys[max(w.rng.IntN(len(w.keys)), w.rng.IntN(len(w.keys)))]
	} else {
		k = &key{name: fmt.Sprintf("key%d", len(w.keys)+1)}
		w.keys = append(w.keys, k)
	}
	for range 1 + w.rng.IntN(2) {
		o := w.newOp(p, "keyed")
		o.key = k
		if len(k.marks) > 0 && !w.one(6) {
			o.mark = k.marks[w.rng.IntN(len(k.marks))]
		} else {
			k.marks = append(k.marks, o.mark)
		}
		k.tried = append(k.tried, o)
		w.submit(p, o, nil, transactor.TxOptions{Key: k.name})
	}
}

// await submits a transaction that waits for room in the queue, for some time.
func (w *world) await(p *proc) {
	o := w.newOp(p, "wait")
	ctx, cancel := context.WithTimeout(context.Background(), 1+w.upTo(5*time.Second))
	w.sends(o, ", and waits for room")
	go func() {
		defer cancel()
		f, err := p.x.Submit(ctx, marked(o, nil), transactor.TxOptions{Wait: true})
		if err != nil {
			w.answered(o, nil, err)
			return
		}
		w.listen(ctx, o, f)
	}()
}

func marked(o *op, data tx.Data) tx.Data {
	return append(tx.Data{tx.Map{"db/id": "new", "m/op": o.mark}}, data...)
}

func (w *world) sends(o *op, more string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	o.call = w.clock
	w.ops = append(w.ops, o)
	if o.key != nil {
		more += " under " + o.key.name
	}
	if o.after != nil {
		more += " after " + o.after.mark
	}
	if o.reg >= 0 {
		more += fmt.Sprintf(": %s = %d", registerName(o.reg), o.value)
		if o.cas {
			more += fmt.Sprintf(" if it is %d", o.old)
		}
	}
	w.note("%s  a client submits %s%s", o.p.name, o.mark, more)
}

// submit submits data and listens for the answer. Sometimes who waits loses patience, which changes nothing.
func (w *world) submit(p *proc, o *op, data tx.Data, opt transactor.TxOptions) {
	w.sends(o, "")
	f, err := p.x.Submit(context.Background(), marked(o, data), opt)
	if err != nil {
		w.answered(o, nil, err)
		return
	}
	o.future = f
	ctx, cancel := context.Background(), func() {}
	if w.one(4) {
		ctx, cancel = context.WithTimeout(ctx, 1+w.upTo(time.Second))
	}
	go func() {
		defer cancel()
		w.listen(ctx, o, f)
	}()
}

func (w *world) listen(ctx context.Context, o *op, f *transactor.Future) {
	w.mu.Lock()
	o.admitted = true
	w.mu.Unlock()
	r, err := f.Wait(ctx)
	var pending *transactor.PendingError
	if errors.As(err, &pending) {
		if pending.Future != f || !errors.Is(err, context.DeadlineExceeded) {
			w.fail("%s: who waits is told %v", o, err)
		}
		r, err = f.Wait(context.Background())
	}
	w.answered(o, r, err)
}

// answered takes the answer to an op.
func (w *world) answered(o *op, r *tx.Report, err error) {
	defer close(o.done)
	if w.deaf(o.p) {
		o.lost = true
		return
	}
	w.healthy(o.p.name, err)
	if err == nil {
		w.lookAtReport(o, r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	o.ret, o.err = w.clock, err
	if err != nil {
		w.note("%s  %s is answered: %v", o.p.name, o.mark, err)
		return
	}
	o.t, o.repeated = r.T, r.Repeated
	o.tempid, _ = r.Tempids.Get("new")
	w.acked = max(w.acked, r.T)
	w.note("%s  %s is committed: t = %d, repeated: %t", o.p.name, o.mark, r.T, r.Repeated)
	if o.reg >= 0 {
		w.heard(o.reg, o.value, o.t)
	}
}

// heard notes the value of a register as of t.
func (w *world) heard(reg int, value int64, t uint64) {
	if t >= w.regsAt[reg] {
		w.regs[reg], w.regsAt[reg] = value, t
	}
}

// deaf reports whether nobody hears what p says any more.
func (w *world) deaf(p *proc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.dead || w.disk != nil && w.disk.Off()
}

func (w *world) lookAtReport(o *op, r *tx.Report) {
	before, after := r.DBBefore.BasisT(), r.DBAfter.BasisT()
	if before != r.T-1 || after != r.T {
		w.fail("%s was committed as t = %d between values at %d and %d", o, r.T, before, after)
	}
	if o.schema != "" && !r.Repeated {
		_, before := r.DBBefore.Schema().Entid(o.schema)
		if _, after := r.DBAfter.Schema().Entid(o.schema); before || !after {
			w.fail("%s: its attribute is there before it: %t, behind it: %t", o, before, after)
		}
	}
	w.seeTx(r.T, r.TxData, o.mark)
	w.lookAtEnds(o.mark, r)
}

// read is what a client found in the registers.
type read struct {
	call, ret int64
	values    [registers]int64
}

// sync reads the registers through a fenced value.
func (w *world) sync(p *proc) {
	w.mu.Lock()
	w.clock++
	r := &read{call: w.clock}
	acked := w.acked
	w.syncs++
	who := fmt.Sprintf("sync%d", w.syncs)
	w.note("%s  %s begins", p.name, who)
	w.mu.Unlock()
	wait := 1 + w.upTo(4*time.Second)
	go func() {
		ctx, cancel := context.WithTimeout(callerContext(who), wait)
		defer cancel()
		d, err := p.x.Sync(ctx)
		if w.deaf(p) {
			return
		}
		if err != nil {
			w.healthy(p.name, err)
			w.say("%s  %s ends: %v", p.name, who, err)
			return
		}
		w.look(p.name+"'s sync", d)
		for i := range r.values {
			r.values[i] = valueOf(d, i)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.clock++
		r.ret = w.clock
		w.reads = append(w.reads, r)
		for i, v := range r.values {
			w.heard(i, v, d.BasisT())
		}
		w.note("%s  %s shows t = %d, registers %v", p.name, who, d.BasisT(), r.values)
		if d.BasisT() < acked {
			w.failed("%s: Sync shows t = %d, and %d was acknowledged before it began", p.name, d.BasisT(), acked)
		}
	}()
}

func valueOf(d db.DB, reg int) int64 {
	id, _ := d.Schema().Entid("r/id")
	e, ok := d.Lookup(id, datom.String(registerName(reg)))
	if !ok {
		return -1
	}
	for x := range d.Datoms(db.EAVT, e, datom.Keyword("r/v")) {
		return x.V.Long()
	}
	return -1
}

// lookAt notes what p shows without being asked to fence, and what it shows of the past.
func (w *world) lookAt(p *proc) {
	d := p.x.DB()
	t := d.BasisT()
	if t < p.basis {
		w.fail("%s went back from t = %d to %d", p.name, p.basis, t)
	}
	p.basis = t
	w.look(p.name, d)
	w.look(p.name+" of the past", d.AsOf(1+w.rng.Uint64N(t)))
}

// What was seen. Whoever looks at t must see the same.

type seen struct {
	sum uint64
	who string
}

// contents are the attributes whose facts tell one value from another.
var contents = []datom.Keyword{"m/op", "r/id", "r/v", "stele.tx/key"}

// look notes a value, or a view of one as of a time.
func (w *world) look(who string, d db.DB) {
	t := d.BasisT()
	if past, ok := d.AsOfT(); ok {
		t = past
	}
	sum := uint64(0)
	for _, a := range contents {
		if _, ok := d.Schema().Entid(a); !ok {
			continue
		}
		for x := range d.Datoms(db.AEVT, a) {
			sum += hashOf(x)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.digest[t]; !ok {
		w.digest[t] = seen{sum, who}
	} else if s.sum != sum {
		w.failed("%s shows something else at t = %d than %s did", who, t, s.who)
	}
}

// lookAtEnds notes the values before and after a transaction, of one in three: looking takes its time.
func (w *world) lookAtEnds(who string, r *tx.Report) {
	if r.T%3 == 0 {
		w.look(who, r.DBBefore)
		w.look(who, r.DBAfter)
	}
}

// seeTx notes the datoms of a transaction.
func (w *world) seeTx(t uint64, datoms []datom.Datom, who string) {
	sum := uint64(len(datoms))
	for _, d := range datoms {
		h := hashOf(d)
		if !d.Added {
			h = ^h
		}
		sum += h
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if have, ok := w.delta[t]; ok && have != sum {
		w.failed("%s was told other datoms of t = %d than others", who, t)
	}
	w.delta[t] = sum
}

// hashOf tells facts apart.
func hashOf(d datom.Datom) uint64 {
	h := fnv.New64a()
	var b [16]byte
	for i := range 8 {
		b[i], b[8+i] = byte(d.E>>(8*i)), byte(d.A>>(8*i))
	}
	h.Write(b[:])
	h.Write(d.V.AppendKey(nil))
	return h.Sum64()
}

// swapped sees who changes the root, and how.
func (w *world) swapped(h *handle, old, next *log.Root) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case next.Instance != old.Instance || next.Lineage != old.Lineage:
		w.failed("%s changed the root's ids", h.name)
	case next.Epoch < old.Epoch || next.Epoch > old.Epoch+1:
		w.failed("%s changed the root's epoch from %d to %d (L3)", h.name, old.Epoch, next.Epoch)
	case next.Epoch == old.Epoch && next.Claim != old.Claim:
		w.failed("%s changed the claim of epoch %d (L3)", h.name, old.Epoch)
	case next.Epoch > old.Epoch && w.claims[next.Claim]:
		w.failed("%s took epoch %d under a claim that was used before (L3)", h.name, next.Epoch)
	case next.Epoch == old.Epoch && !h.sent[old.Claim]:
		w.failed("%s changed the root of epoch %d, which is another's", h.name, old.Epoch)
	}
	w.claims[next.Claim] = true
}
