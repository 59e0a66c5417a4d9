// Command stele works on Stele databases from the shell:
//
//	stele transact -store URL [FILE…|-]    transact EDN or JSON files
//	stele count -store URL [--by attribute] current facts, all or by attribute
//
// Exit status: 0, done; 1, refused or failed, and standard error says what and where; 2, the command line is wrong; 130, interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// cli is the command line. Flags may be written with one dash or two.
type cli struct {
	Transact transactCmd `cmd:"" help:"Transact every transaction of EDN or JSON files, in order, and stop at the first refusal."`
	Count    countCmd    `cmd:"" help:"Count the current facts of a database."`
}

// streams are the process's, or a test's.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// run is the command, given everything from outside; it returns the exit status.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	var c cli
	exited := -1
	parser, err := kong.New(&c, kong.Name("stele"),
		kong.Description("Stele: an immutable, time-aware fact store on storage you already run."),
		kong.UsageOnError(), kong.Writers(out, errs), kong.Exit(func(code int) { exited = code }),
		kong.Vars{"stores": "fs:DIR (or just DIR), postgres://…, s3://BUCKET or mem:NAME; with ?db=NAME for another database than main"})
	if err != nil {
		fmt.Fprintln(errs, "stele:", err)
		return exitFailed
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(twoDashes(args))
	switch {
	case exited >= 0: // --help
		return exited
	case err != nil:
		fmt.Fprintf(errs, "stele: %v\nstele --help says more\n", err)
		return exitUsage
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	err = parsed.Run(&streams{in: in, out: out, err: errs})
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(errs, "stele: interrupted")
		return exitInterrupted
	}
	fmt.Fprintln(errs, "stele:", err)
	return exitFailed
}

// twoDashes lets long flags be written with one dash, as Go's own commands have them. Everything behind "--" is left alone.
func twoDashes(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if a == "--" {
			copy(out[i:], args[i:])
			break
		}
		if len(a) > 2 && a[0] == '-' && a[1] != '-' && strings.Trim(a[1:2], "abcdefghijklmnopqrstuvwxyz") == "" {
			a = "-" + a
		}
		out[i] = a
	}
	return out
}

// logger shows an operator what went wrong, and nothing else.
func (s *streams) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
