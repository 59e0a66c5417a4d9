// Command tx_throughput measures how many transactions a database commits and how long each takes, and shows how a program
// opens one, writes to it from many goroutines, and reads it.
//
//	go run ./examples/tx_throughput
//
// It opens a fresh database on a local disk and runs a closed loop: so many clients, each of which commits a transaction, waits for
// its answer, and goes on with the next. It does that with 1, 4, 16, 64 and 256 clients and prints a line for each. After each
// level it reads the database again and looks for every transaction that was acknowledged; at the end it closes the database,
// opens it by replaying the log, and looks for all of them once more. It fails if one is missing.
//
// A transaction of shape "insert" adds an entity with a unique key, a string of 24 bytes in random order, and -datoms − 1 texts of
// 24 bytes. One of shape "update" changes -datoms / 2 texts of a random entity of those that were loaded before (-preload), each of which
// is two datoms: the old text retracted, the new one asserted. Datoms are counted without :db/txInstant, and each report is
// checked to hold as many as it should, so a fact that was already there is never measured.
//
// Times are from the call of Transact to its return, in a histogram that holds them to three digits and clamps none. With
// -rounds 3 the levels are run three times in turn, and the table has the median of each column.
//
// -floor runs each level twice more, to show what the library costs: "bare" is the same number of clients that hand the same bytes
// to the log alone, in objects of the same number of transactions, with no transactor and nothing checked; "inline" is one
// goroutine that prepares, encodes and writes the same transactions itself, a batch after the other, with no hop between goroutines. On a store behind
// a network there is a third, "plain": each client writes its transaction by one plain INSERT, or one PUT, of its own.
//
// -delay 5ms puts a proxy between the program and the store's server, which delays each direction.
//
// -accept measures the promises that docs/perf-targets.md makes about ratios, in one process, three rounds in turn, prints each
// with its bound, and fails if one does not hold. With -store postgres://… or s3://… it measures those about that store; its
// databases are deleted at the end. -pressure measures those about a transactor that is offered four times what it can do, in an open loop of a minute, and about
// reads while a flush hangs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	// Nobody reads the table any more ("| head"): end as if interrupted, and leave no database behind.
	ctx, cancel := context.WithCancel(ctx)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	go func() {
		<-pipe
		cancel()
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. When ctx ends, it stops measuring, and reports and checks what was measured. It returns the exit
// status: 0; 1 if something failed; 2 for bad arguments.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	p := newProgress(stderr)
	switch {
	case s.pressure:
		err = pressure(ctx, s, stdout, p)
	case s.accept && s.store != "":
		err = acceptNetwork(ctx, s, stdout, p)
	case s.accept:
		err = accept(ctx, s, stdout, p)
	default:
		err = sweep(ctx, s, stdout, p)
	}
	p.done()
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "tx_throughput: %v\n", err)
		return 1
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "tx_throughput: interrupted; what is printed was measured until then")
	}
	return 0
}
