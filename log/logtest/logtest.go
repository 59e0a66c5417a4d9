// Package logtest is the one conformance suite for backends: a test for every sentence of the comments on log.Log
// (sentences_test.go names them), and for the rules of the protocol that a store can break (orders.go, chain.go, database.go). Each
// backend runs it against its real store; every case is seen failing against a store in memory that breaks a sentence (logtest_test.go).
//
//	func TestConformance(t *testing.T) {
//		logtest.Run(t, logtest.Backend{Name: "fs", New: func(t *testing.T) func() log.Log { … }})
//	}
package logtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/log"
)

// Backend is a store under test.
type Backend struct {
	// Name stands in the line that the suite prints, so that a log shows which stores were really tested.
	Name string
	// Server asks the store which server and version it is, for the same line. Nil: there is none, as for fs.
	Server func(t testing.TB) string
	// New makes an empty place for one database, which goes away with t, and returns what opens a handle on it: each call
	// another one, as another process would have. The suite closes the handles; t.Fatal is how New and open fail.
	New func(t *testing.T) (open func() log.Log)
	// OneWriter: the store's Lock is a real one, and only the handle that holds it appends (fs). Where several handles race, the
	// suite then races goroutines on one handle.
	OneWriter bool
}

// Record names, in the environment, a file to which Run adds a line for each backend whose tests passed: name, server and number of cases,
// separated by tabs. `go test ./...` does not show what passing packages print; `make test` reads this file instead.
const Record = "STELE_TEST_BACKENDS"

// Run tests the backend against the whole contract.
func Run(t *testing.T, b Backend) {
	t.Helper()
	info := func() log.Info {
		l := b.New(t)()
		defer l.Close()
		return l.Info()
	}()
	server := "no server; durability: " + info.Durability
	if b.Server != nil {
		server = b.Server(t)
	}
	t.Logf("backend %s: %s, %s, durability %q, depth %d", b.Name, server, info.Location, info.Durability, info.Depth)
	var ran atomic.Int64
	t.Cleanup(func() {
		if ran.Load() > 0 && !t.Failed() {
			record(t, fmt.Sprintf("%s\t%s\t%d\n", b.Name, server, ran.Load()))
		}
	})
	for _, c := range slices.Concat(rootCases, appendCases, readCases, ownerCases, chainCases, databaseCases, handleCases) {
		t.Run(c.name, func(t *testing.T) {
			t.Cleanup(func() {
				if !t.Skipped() {
					ran.Add(1)
				}
			})
			c.run(&suite{T: t, b: b, open: b.New(t), ctx: t.Context()})
		})
	}
}

// record adds a line to the file that the environment names, if it names one. Several processes do so at once: one write a line.
func record(t *testing.T, line string) {
	name := os.Getenv(Record)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteString(line)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		t.Errorf("%s: %v", Record, err)
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
