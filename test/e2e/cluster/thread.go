package cluster

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onThread runs f on an operating system thread that ends afterwards, so that f
// may move the thread into namespaces and cgroups. It is never the process's
// first thread, which /proc/self and the threads made later stand for.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// Another thread runs f while this goroutine keeps the first one.
			done <- onThread(f)
			runtime.UnlockOSThread()
			return
		}
		done <- f()
		// Locked until its end: the runtime drops the thread.
	}()
	return <-done
}
