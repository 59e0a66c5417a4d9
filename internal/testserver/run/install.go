package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/steledb/stele/internal/testserver"
)

// install gets PostgreSQL and PgBouncer where that can be done without asking: as root on Debian and what derives from it. Elsewhere
// its error says what is missing.
func install(ctx context.Context, out io.Writer) error {
	missing := errors.Join(testserver.PostgresInstalled(), testserver.PgBouncerInstalled())
	if missing == nil {
		return nil
	}
	apt, err := exec.LookPath("apt-get")
	switch {
	case err != nil:
		return fmt.Errorf("%w\ninstall them with this system's packages", missing)
	case os.Geteuid() != 0:
		return fmt.Errorf("%w\ninstall them with: apt-get install postgresql pgbouncer", missing)
	}
	fmt.Fprintln(out, "testserver: installing postgresql and pgbouncer with apt-get")
	undo, err := quiet()
	if err != nil {
		return errors.Join(err, undo())
	}
	for _, args := range [][]string{{"update", "-q"}, {"install", "-q", "-y", "--no-install-recommends", "postgresql", "pgbouncer"}} {
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), undo())
		}
		// Not ended by ctx, and not by a Ctrl-C in the terminal: half an installation is worse than waiting for it.
		cmd := exec.Command(apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Run(); err != nil {
			return errors.Join(fmt.Errorf("apt-get %s: %w", args[0], err), missing, undo())
		}
	}
	return errors.Join(undo(), testserver.PostgresInstalled(), testserver.PgBouncerInstalled())
}

// quiet makes the packages neither create a cluster nor start a service while they are installed. undo may be called in any case.
func quiet() (undo func() error, err error) {
	var made []string
	undo = func() error {
		var errs []error
		for _, path := range made {
			errs = append(errs, os.Remove(path))
		}
		return errors.Join(errs...)
	}
	for _, f := range []struct {
		path, content string
		mode          os.FileMode
	}{
		{"/etc/postgresql-common/createcluster.d/stele-tests.conf", "create_main_cluster = false\n", 0o644},
		{"/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755},
	} {
		if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
			return undo, err
		}
		file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
		if errors.Is(err, os.ErrExist) {
			continue // the machine has a rule of its own
		}
		if err != nil {
			return undo, err
		}
		made = append(made, f.path)
		_, err = file.WriteString(f.content)
		if err := errors.Join(err, file.Close()); err != nil {
			return undo, err
		}
	}
	return undo, nil
}
