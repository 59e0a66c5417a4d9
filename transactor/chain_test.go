package transactor

import (
	"context"
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
)

// chainOf proves the whole log behind l, as a reader does, and returns its objects, oldest first.
func chainOf(t testing.TB, l log.Log) []*log.Object {
	t.Helper()
	var out []*log.Object
	_, err := log.NewReader(l, log.ReaderOptions{}).Sync(context.Background(), func(o *log.Object) error {
		out = append(out, o)
		return nil
	})
	if err != nil {
		t.Fatalf("the chain does not verify: %v", err)
	}
	return out
}

// objects lists what is in the store, on the chain or not.
func (w *world) objects() (keys []log.Key) {
	w.t.Helper()
	l := w.server.Open("main", mem.Options{})
	defer l.Close()
	root, err := l.Root(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for k, err := range l.List(context.Background(), root.Instance, log.Key{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		keys = append(keys, k)
	}
	return keys
}
