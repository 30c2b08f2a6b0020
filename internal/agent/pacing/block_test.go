package pacing

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A wait ends with its time or with what it waits for, and holds up nothing else: other goroutines run and garbage is
// collected, also while there is place for one goroutine alone.
func TestBlock(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(wake)
	fd := unix.PollFd{Fd: int32(wake), Events: unix.POLLIN}
	short, long := unix.NsecToTimespec(int64(time.Millisecond)), unix.NsecToTimespec(int64(time.Hour))
	begun := time.Now()
	if block(&fd, short) || time.Since(begun) < time.Millisecond {
		t.Errorf("returned after %s", time.Since(begun))
	}
	woken := make(chan bool)
	go func() {
		runtime.LockOSThread()
		woken <- block(&fd, long)
	}()
	debug.FreeOSMemory()
	if _, err := unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if !<-woken {
		t.Error("what it waited for came, and it says that it did not")
	}
}
