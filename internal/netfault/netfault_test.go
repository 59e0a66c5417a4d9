package netfault_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/internal/netfault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a TCP server on loopback that speaks in lines: to "echo x" it answers "x", to "many n" n bytes and a newline. It keeps what it got.
type server struct {
	net.Listener
	mu  sync.Mutex
	got []string
	has chan string // each line, once it has come
}

func serve(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l, has: make(chan string, 10000)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.talk(c) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return s
}

func (s *server) talk(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		text, err := r.ReadString('\n')
		if err != nil {
			return
		}
		s.mu.Lock()
		s.got = append(s.got, strings.TrimSpace(text))
		s.mu.Unlock()
		select {
		case s.has <- strings.TrimSpace(text):
		default: // nobody is interested in so many
		}
		var n int
		if _, err := fmt.Sscanf(text, "many %d", &n); err == nil {
			text = strings.Repeat("x", n) + "\n"
		}
		if _, err := io.WriteString(c, strings.TrimPrefix(text, "echo ")); err != nil {
			return
		}
	}
}

func listen(t *testing.T, target string) *netfault.Proxy {
	t.Helper()
	p, err := netfault.Listen(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// client is one connection through a proxy.
type client struct {
	*testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, p *netfault.Proxy) *client {
	t.Helper()
	c, err := net.Dial("tcp4", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // a test that hangs fails
		t.Fatal(err)
	}
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) say(text string) {
	c.Helper()
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		c.Fatal(err)
	}
}

func (c *client) hear(want string) {
	c.Helper()
	got, err := c.r.ReadString('\n')
	if err != nil || got != want+"\n" {
		c.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

// broken reads to the end, which must be a reset, and returns what came before.
func (c *client) broken() string {
	c.Helper()
	b, err := io.ReadAll(c.r)
	if !errors.Is(err, syscall.ECONNRESET) {
		c.Fatalf("the connection ended with %v behind %q; want a reset", err, b)
	}
	return string(b)
}

func TestPassesEverythingOn(t *testing.T) {
	s := serve(t)
	p := listen(t, s.Addr().String())
	var wg sync.WaitGroup
	for i := range 8 {
		c := dial(t, p)
		wg.Go(func() {
			for j := range 100 {
				text := fmt.Sprint(i, j)
				c.say("echo " + text)
				if got, err := c.r.ReadString('\n'); err != nil || got != text+"\n" {
					t.Errorf("heard %q, %v; want %q", got, err, text)
				}
			}
		})
	}
	wg.Wait()
	if st := p.Stats(); st.Conns != 8 || st.Turns != 800 || st.Failed != 0 || st.Up != st.Down+800*int64(len("echo ")) {
		t.Errorf("counted %+v", st)
	}
}

// TestHalfClose: an end of the stream passes in one direction while the other goes on.
func TestHalfClose(t *testing.T) {
	sum := func(c net.Conn) { // answers how many bytes came, once they have ended
		defer c.Close()
		b, _ := io.ReadAll(c)
		fmt.Fprintln(c, len(b))
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			sum(c)
		}
	}()
	p := listen(t, l.Addr().String())
	p.Set(netfault.Both(netfault.Link{Delay: time.Millisecond}))
	c := dial(t, p)
	big := make([]byte, 3<<20)
	if _, err := c.Write(big); err != nil {
		t.Fatal(err)
	}
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c.hear(fmt.Sprint(len(big)))
	if b, err := io.ReadAll(c.r); err != nil || len(b) != 0 {
		t.Errorf("then came %q, %v", b, err)
	}
}

// TestDelay: everything is late by the delay, and requests that are sent behind each other are not round trips.
func TestDelay(t *testing.T) {
	s := serve(t)
	p := listen(t, s.Addr().String())
	const delay = 50 * time.Millisecond
	p.Set(netfault.Both(netfault.Link{Delay: delay}))
	c := dial(t, p)
	began := time.Now()
	const n = 500
	go func() {
		for i := range n {
			fmt.Fprintf(c, "echo %d\n", i)
		}
	}()
	for i := range n {
		c.hear(fmt.Sprint(i))
	}
	if took := time.Since(began); took < 2*delay {
		t.Errorf("there and back took %v", took)
	}
	if st := p.Stats(); st.Turns > n/2 {
		t.Errorf("%d requests behind each other counted as %d turns", n, st.Turns)
	}
}

// TestTurns counts the round trips that a client waits for, not packets.
func TestTurns(t *testing.T) {
	s := serve(t)
	p := listen(t, s.Addr().String())
	p.Set(netfault.Both(netfault.Link{Delay: 10 * time.Millisecond}))
	c := dial(t, p)
	for i, what := range []func(){
		func() { c.say("echo a"); c.hear("a") },
		func() { c.say("echo a\necho b\necho c"); c.hear("a"); c.hear("b"); c.hear("c") },
		func() { c.say("many 200000"); c.hear(strings.Repeat("x", 200000)) },
		func() { c.say("echo " + strings.Repeat("y", 200000)); c.hear(strings.Repeat("y", 200000)) },
	} {
		what()
		if st := p.Stats(); st.Turns != int64(i+1) {
			t.Fatalf("after %d exchanges: %d turns", i+1, st.Turns)
		}
	}
}

func TestRate(t *testing.T) {
	s := serve(t)
	p := listen(t, s.Addr().String())
	p.Set(netfault.Faults{Down: netfault.Link{Rate: 1 << 20}})
	c := dial(t, p)
	began := time.Now()
	c.say("many 200000")
	c.hear(strings.Repeat("x", 200000))
	if took, want := time.Since(began), 200000*time.Second/(1<<20); took < want {
		t.Errorf("200000 bytes at 1 MiB/s took %v; want at least %v", took, want)
	}
}

func TestRefuse(t *testing.T) {
	s := serve(t)
	p := listen(t, s.Addr().String())
	c := dial(t, p)
	c.say("echo a")
	c.hear("a")
	p.Refuse()
	if c, err := net.Dial("tcp4", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling: %v, %v", c, err)
	}
	c.say("echo b")
	c.hear("b")
	if err := errors.Join(p.Accept(), p.Accept()); err != nil {
		t.Fatal(err)
	}
	d := dial(t, p)
	d.say("echo c")
	d.hear("c")
}

func TestReset(t *testing.T) {
	s := serve(t)
	p := listen(t, s.Addr().String())
	c := dial(t, p)
	c.say("echo a")
	c.hear("a")
	p.Reset()
	c.broken()
	d := dial(t, p)
	d.say("echo a")
	d.hear("a")
}

// TestServerIsGone: a client of a server that is not there is connected, and reset.
func TestServerIsGone(t *testing.T) {
	s := serve(t)
	p := listen(t, s.Addr().String())
	s.Close()
	c, err := net.Dial("tcp4", p.Addr())
	if err == nil { // the reset was not so fast that dialling already saw it
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v; want a reset", err)
	}
	if st := p.Stats(); st.Failed != 1 {
		t.Errorf("counted %+v", st)
	}
}

// TestDropReplies: requests are delivered, answers never come; when the network is well again, the connection is not.
func TestDropReplies(t *testing.T) {
	s := serve(t)
	p := listen(t, s.Addr().String())
	c, idle := dial(t, p), dial(t, p)
	idle.say("echo idle")
	idle.hear("idle")
	<-s.has
	p.Set(netfault.Faults{Down: netfault.Link{Drop: true}})
	c.say("echo a")
	if got := <-s.has; got != "echo a" {
		t.Errorf("the server got %q", got)
	}
	c.say("echo b") // and the reply to a is dropped, or under way, when this is there
	<-s.has
	nothing(t, c)
	p.Set(netfault.Faults{})
	if b := c.broken(); b != "" {
		t.Errorf("then came %q", b)
	}
	idle.say("echo it lost nothing")
	idle.hear("it lost nothing")
}

// TestNothingIsLostAndGoesOn: whenever Drop comes and goes, a client sees a stream without a gap, and then perhaps a reset.
func TestNothingIsLostAndGoesOn(t *testing.T) {
	s := serve(t)
	p := listen(t, s.Addr().String())
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp4", p.Addr())
				if err != nil {
					continue
				}
				go func() {
					for i := 0; ; i++ {
						if _, err := fmt.Fprintf(c, "echo %d\n", i); err != nil {
							return
						}
					}
				}()
				lines := bufio.NewScanner(c)
				for i := 0; i < 5000 && lines.Scan(); i++ {
					if got := lines.Text(); got != fmt.Sprint(i) && lines.Scan() { // the last one may be half a line
						t.Errorf("behind %d came %s", i-1, got)
						break
					}
				}
				c.Close()
			}
		})
	}
	for i := range 300 {
		l := netfault.Link{Drop: i%2 == 0}
		p.Set([]netfault.Faults{{Up: l}, {Down: l}, netfault.Both(l)}[i/2%3])
		<-time.After(time.Duration(i%4) * time.Millisecond / 2)
	}
	close(stop)
	p.Reset()
	clients.Wait()
}

func nothing(t *testing.T, c *client) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if b, err := c.r.ReadByte(); err == nil {
		t.Errorf("%q came", b)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
}

// TestDropRequests: nothing arrives, and the server does not even learn that the client is gone.
func TestDropRequests(t *testing.T) {
	s := serve(t)
	p := listen(t, s.Addr().String())
	c := dial(t, p)
	c.say("echo a")
	c.hear("a")
	<-s.has
	p.Set(netfault.Faults{Up: netfault.Link{Drop: true}})
	c.say("echo b")
	nothing(t, c)
	p.Set(netfault.Faults{})
	c.broken()
	d := dial(t, p)
	d.say("echo c")
	d.hear("c")
	if got := <-s.has; got != "echo c" {
		t.Errorf("the server got %q", got)
	}
}

// TestHold: late, and nothing is lost.
func TestHold(t *testing.T) {
	s := serve(t)
	p := listen(t, s.Addr().String())
	c := dial(t, p)
	p.Set(netfault.Faults{Down: netfault.Link{Hold: true}})
	c.say("echo a")
	<-s.has
	c.say("many 100000")
	<-s.has
	nothing(t, c)
	p.Set(netfault.Faults{})
	c.hear("a")
	c.hear(strings.Repeat("x", 100000))
}

// TestHoldIsBounded: a sender that is held back is stopped in the end, as by TCP, and loses nothing.
func TestHoldIsBounded(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := listen(t, l.Addr().String())
	c := dial(t, p)
	p.Set(netfault.Faults{Up: netfault.Link{Hold: true}})
	big := make([]byte, 64<<20)
	for i := range len(big) / 8 {
		binary.LittleEndian.PutUint64(big[8*i:], uint64(i))
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(big)
		sent <- err
	}()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	select {
	case err := <-sent:
		t.Fatalf("64 MiB went into a network that holds everything: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	p.Set(netfault.Faults{})
	got := make([]byte, len(big))
	if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, big) {
		t.Errorf("not all of it came: %v", err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestCutReply: the request that match likes is delivered, n bytes of the answer are, and then the connection is reset; others are left alone.
func TestCutReply(t *testing.T) {
	s := serve(t)
	for _, n := range []int64{0, 1, 3, 70000, 100001} {
		p := listen(t, s.Addr().String())
		c, other := dial(t, p), dial(t, p)
		cut := p.CutReply(n, func(sent []byte) bool { return bytes.HasPrefix(sent, []byte("many")) })
		second := p.CutReply(0, nil)
		other.say("echo a")
		other.hear("a")
		c.say("echo b")
		c.hear("b")
		before := p.Stats().Down
		c.say("many 100000")
		<-cut
		if got := p.Stats().Down - before; got != n {
			t.Errorf("%d bytes were let through; want %d", got, n)
		}
		c.broken()
		select {
		case <-second:
			t.Error("the second cut was used up with the first")
		default:
		}
		other.say("echo c")
		<-second
		if b := other.broken(); b != "" {
			t.Errorf("%q came", b)
		}
		d := dial(t, p)
		d.say("echo d")
		d.hear("d")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Count(strings.Join(s.got, "\n"), "many"); got != 5 {
		t.Errorf("the server got %d of 5 requests whose answers were cut", got)
	}
}

// TestCutOfAConnectionThatEnds: whoever waits for a cut does not wait for ever.
func TestCutOfAConnectionThatEnds(t *testing.T) {
	s := serve(t)
	p := listen(t, s.Addr().String())
	c := dial(t, p)
	cut := p.CutReply(1<<20, nil)
	c.say("echo a")
	c.hear("a")
	c.Close()
	<-cut
}

// TestCloseEndsEverything, in whatever state connections are.
func TestCloseEndsEverything(t *testing.T) {
	s := serve(t)
	for _, f := range []netfault.Faults{
		{}, netfault.Both(netfault.Link{Delay: time.Hour}), netfault.Both(netfault.Link{Hold: true}),
		netfault.Both(netfault.Link{Drop: true}), netfault.Both(netfault.Link{Rate: 1}),
	} {
		p := listen(t, s.Addr().String())
		p.Set(f)
		c, silent := dial(t, p), dial(t, p)
		c.say("many 100000")
		c.say(strings.Repeat("long ", 1000))
		if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		silent.SetDeadline(time.Now().Add(time.Minute))
		if _, err := silent.Read(make([]byte, 1)); err == nil {
			t.Error("a connection survived")
		}
		if err := p.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept of a closed proxy: %v", err)
		}
	}
}

func TestListenRefusesNonsense(t *testing.T) {
	if p, err := netfault.Listen("nonsense"); err == nil {
		p.Close()
		t.Error("a target without a port was taken")
	}
}
