package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress tells whoever waits what is going on: a line that is written over on a terminal, or else one line for each step. All of one
// goroutine.
type progress struct {
	w        io.Writer
	terminal bool
	width    int // of what stands on the terminal's line
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// step says that something begins.
func (p *progress) step(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.terminal {
		p.over(text)
		return
	}
	fmt.Fprintln(p.w, text)
}

// tick says how far it has come. It is seen on a terminal only.
func (p *progress) tick(format string, args ...any) {
	if p.terminal {
		p.over(fmt.Sprintf(format, args...))
	}
}

// note is a line that stays.
func (p *progress) note(format string, args ...any) {
	p.done()
	fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *progress) over(text string) {
	fmt.Fprintf(p.w, "\r%s%s", text, strings.Repeat(" ", max(p.width-len(text), 0)))
	p.width = len(text)
}

// done clears the terminal's line, so that something else can be written.
func (p *progress) done() {
	if p.width > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}

// every calls tick again and again until done is closed.
func every(done <-chan struct{}, tick func()) {
	t := time.NewTicker(250 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
			tick()
		}
	}
}
