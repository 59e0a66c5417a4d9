// Package logtest is the one conformance suite for backends: a test for every sentence of the comments on log.Log. Each
// backend runs it against its real store.
//
//	func TestConformance(t *testing.T) {
//		logtest.Run(t, logtest.Backend{Name: "fs", New: func(t *testing.T) func() log.Log { … }})
//	}
package logtest

import (
	"context"
	"slices"
	"testing"

	"github.com/steledb/stele/log"
)

// Backend is a store under test.
type Backend struct {
	// Name stands in the line that the suite prints, so that a log shows which stores were really tested.
	Name string
	// New makes an empty place for one database, which goes away with t, and returns what opens a handle on it: each call
	// another one, as another process would have. The suite closes the handles; t.Fatal is how New and open fail.
	New func(t *testing.T) (open func() log.Log)
	// OneWriter: the store's Lock is a real one, and only the handle that holds it appends (fs). Where several handles race, the
	// suite then races goroutines on one handle.
	OneWriter bool
}

// Run tests the backend against the whole contract.
func Run(t *testing.T, b Backend) {
	t.Helper()
	info := func() log.Info {
		l := b.New(t)()
		defer l.Close()
		return l.Info()
	}()
	t.Logf("backend %s: %s, durability %q, depth %d", b.Name, info.Location, info.Durability, info.Depth)
	for _, c := range slices.Concat(rootCases, appendCases, readCases, ownerCases, chainCases, handleCases) {
		t.Run(c.name, func(t *testing.T) {
			c.run(&suite{T: t, b: b, open: b.New(t), ctx: t.Context()})
		})
	}
}

// suite is one case's store and what the cases use to speak with it.
type suite struct {
	*testing.T
	b    Backend
	open func() log.Log
	ctx  context.Context
}

type testCase struct {
	name string
	run  func(*suite)
}

// inParallel runs f n times at once and returns what each said.
func inParallel(n int, f func(i int) error) []error {
	errs := make([]error, n)
	done := make(chan struct{})
	gate := make(chan struct{})
	for i := range n {
		go func() {
			defer func() { done <- struct{}{} }()
			<-gate
			errs[i] = f(i)
		}()
	}
	close(gate)
	for range n {
		<-done
	}
	return errs
}
