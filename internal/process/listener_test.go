package process

import (
	"net"
	"net/netip"
	"os"
	"testing"
)

// Who has a port is found, by any of the addresses at which it answers, and nobody where none has it.
func TestListenerAt(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
		if err != nil {
			t.Logf("%s: %v", at, err) // a machine without IPv6
			continue
		}
		address := l.Addr().(*net.TCPAddr).AddrPort()
		want := Listener{UID: os.Getuid(), PID: os.Getpid()}
		if who, ok := ListenerAt(address); !ok || who != want {
			t.Errorf("%s: %+v, %v", at, who, ok)
		}
		if who, ok := ListenerAt(netip.AddrPortFrom(netip.IPv4Unspecified(), address.Port())); !ok || who != want {
			t.Errorf("%s, by its port: %+v, %v", at, who, ok)
		}
		other := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), address.Port())
		if _, ok := ListenerAt(other); ok != address.Addr().IsUnspecified() {
			t.Errorf("%s, by another address: %v", at, ok)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if who, ok := ListenerAt(address); ok && who.PID == os.Getpid() { // another program may have it by now
			t.Errorf("%s is free: %+v", at, who)
		}
	}
}

func TestParseListener(t *testing.T) {
	for line, want := range map[string]string{
		"   0: 0100007F:24C2 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1 ffff 100 0 0 10 0":                                         "127.0.0.1:9410",
		"   1: 00000000000000000000000001000000:24C2 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 12345 1 ffff 100 0 0 10 0": "[::1]:9410",
	} {
		if l, ok := parseListener([]byte(line)); !ok || l.at.String() != want || l.uid != 1000 || l.inode != "12345" {
			t.Errorf("%q: %+v, %v", line, l, ok)
		}
	}
	if l, ok := parseListener([]byte("   0: 0100007F:24C2 0100007F:1000 01 00000000:00000000 00:00000000 00000000  1000        0 12345 1")); ok {
		t.Errorf("a connection listens: %+v", l)
	}
}

func FuzzParseListener(f *testing.F) {
	f.Add([]byte("   0: 0100007F:24C2 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1"))
	f.Add([]byte("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if l, ok := parseListener(line); ok && (!l.at.IsValid() || l.uid < 0) {
			t.Errorf("%q: %+v", line, l)
		}
	})
}
