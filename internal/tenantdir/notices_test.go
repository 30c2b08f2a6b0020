package tenantdir

import (
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// Who closes a page may have died, and who touches one does something; what is done
// with the page of a tenant that was removed is nobody's business.
func TestNotices(t *testing.T) {
	n, err := newNotices()
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{}
	for _, tenant := range []string{"a", "b"} {
		dir := t.TempDir()
		paths[tenant] = Dir(dir).State()
		if err := os.WriteFile(paths[tenant], nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := n.Add(backend.Tenant{ID: tenant, Dir: dir}); err != nil {
			t.Fatal(err)
		}
	}
	heard := make(chan string)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.Run(t.Context(), backend.Listener{
			Death: func(tenant string) { heard <- tenant + " died" }, Stir: func(tenant string) { heard <- tenant + " stirred" },
		})
	}()
	touch := func(tenant string) {
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, paths[tenant], nil, 0); err != nil {
			t.Error(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("heard that %s, want %s", got, want)
			}
		case <-time.After(5 * time.Minute):
			t.Fatalf("did not hear that %s", want)
		}
	}
	touch("a")
	expect("a stirred")
	if file, err := os.OpenFile(paths["a"], os.O_WRONLY, 0); err != nil || file.Close() != nil {
		t.Fatal(err)
	}
	expect("a died")
	if _, err := os.ReadFile(paths["a"]); err != nil { // as the agent itself does all the time
		t.Fatal(err)
	}
	n.Remove("a")
	touch("a")
	touch("b")
	expect("b stirred")
	n.Close()
	<-ended
}

// A flood counts once per reading, and the kernel says when it was too much for it.
func TestFloodOfNotices(t *testing.T) {
	n := notices{tenants: map[int32]string{1: "a", 2: "b"}}
	var heard []string
	to := backend.Listener{
		Death: func(tenant string) { heard = append(heard, tenant+" died") },
		Stir:  func(tenant string) { heard = append(heard, tenant+" stirred") },
		Lost:  func() { heard = append(heard, "some were lost") },
	}
	n.tell(map[int32]uint32{
		1: unix.IN_CLOSE_WRITE | unix.IN_ATTRIB, 2: unix.IN_IGNORED, 3: unix.IN_CLOSE_WRITE, -1: unix.IN_Q_OVERFLOW,
	}, to)
	slices.Sort(heard)
	if want := []string{"a died", "a stirred", "some were lost"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
}

func FuzzPageEvents(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		if got := pageEventsIn(data); len(got) > len(data)/16 {
			t.Fatalf("%d events in %d bytes", len(got), len(data))
		}
	})
}
