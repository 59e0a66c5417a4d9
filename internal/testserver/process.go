package testserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// process is a server's process. It dies with this one.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once it has ended
	err  error         // how it ended, once done is closed
}

// start starts cmd in a process group of its own, so that a Ctrl-C in the terminal is this process's to handle. The kernel sends it
// deathSig when this process ends. More exactly, when the thread ends that started it: a goroutine of its own keeps one for it.
func start(cmd *exec.Cmd, deathSig syscall.Signal) (*process, error) {
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = deathSig
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Time limits for servers on a busy machine.
const (
	startLimit = 2 * time.Minute
	stopLimit  = time.Minute
)

// ready returns once ask returns nil. It fails when the process ends or the time is over.
func (p *process) ready(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := p.asked(ctx, ask)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended while starting: %v", p.err)
		case <-ctx.Done():
			return fmt.Errorf("it did not answer in time: %w: %w", context.Cause(ctx), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// asked asks once, for as long as the process lives: another one that has its port might never answer.
func (p *process) asked(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	go func() {
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ask(ctx)
}

// end sends sig and waits until the process is gone. One that ignores it is killed, which is an error.
func (p *process) end(sig syscall.Signal) error {
	_ = p.cmd.Process.Signal(sig) // it may have ended before
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	select {
	case <-p.done:
		return nil
	case <-time.After(stopLimit):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("%s did not end on %v within %v and was killed", p.cmd.Path, sig, stopLimit)
}

// errPort: somebody else has the port.
var errPort = errors.New("the port is taken")

// onPort starts a server on a port that choose gives, and tries others when that is taken before the server has it.
func onPort(ctx context.Context, choose func() (int, error), start func(port int) error) error {
	var err error
	for range 10 {
		port, cerr := choose()
		if cerr == nil {
			err = start(port)
			if err == nil {
				return nil
			}
			if free := bindable(port); free {
				return err // the port was not the reason
			}
		} else {
			err = cerr
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
	return err
}

// freePort finds a loopback port that nobody has. It looks below the ports that the kernel hands to clients (32768 and up), where a
// client could take it while a server is down between Kill and Start.
func freePort() (int, error) {
	for range 1000 {
		if port := 12000 + rand.IntN(20000); bindable(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free loopback port was found: %w", errPort)
}

// same chooses the same port again.
func same(port int) func() (int, error) {
	return func() (int, error) {
		if !bindable(port) {
			return 0, fmt.Errorf("%w: %d", errPort, port)
		}
		return port, nil
	}
}

func bindable(port int) bool {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// clean is the environment of a server: nothing of ours steers it.
func clean(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C", "TZ=UTC"}
}
