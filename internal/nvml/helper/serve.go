package helper

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// library is what a helper asks: an [nvml.Library], or a test's.
type library interface {
	Version() nvml.Version
	Know(gpus []nvml.GPU)
	Count() (int, error)
	Identify(index int) (nvml.Facts, error)
	Condition(index int) (nvml.Condition, error)
	Processes(index int) ([]nvml.Process, error)
	Used(index int) (uint64, error)
	Utilisation(index int, since time.Time) ([]nvml.Utilisation, error)
}

// socketFD is a helper's end of the connection to its agent.
const socketFD = 3

// Main is the life of a helper process: it answers its agent until that ends or closes the connection. Signals for
// the agent's process group are the agent's to follow.
func Main() error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// It does one thing at a time, dozens of times a second: waking a second thread for it costs more than the thing. A
	// call that does not return is taken off the processor all the same.
	runtime.GOMAXPROCS(1)
	syscall.CloseOnExec(socketFD)
	socket := os.NewFile(socketFD, "agent")
	return serve(socket, func(path string) (library, error) {
		l, err := nvml.Open(path)
		if err != nil {
			return nil, err // and no interface of a nil pointer
		}
		return l, nil
	}, func() { os.Exit(0) })
}

// serve answers questions. When the connection ends it calls hungUp at once, whatever call has not returned.
func serve(agent io.ReadWriter, open func(path string) (library, error), hungUp func()) error {
	questions := make(chan question)
	failed := make(chan error, 1)
	go func() {
		in := gob.NewDecoder(agent)
		for {
			var q question
			if err := in.Decode(&q); err != nil {
				if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
					hungUp()
				}
				failed <- fmt.Errorf("read the agent's question: %w", err)
				return
			}
			questions <- q
		}
	}()
	var l library
	out := gob.NewEncoder(agent)
	for {
		var q question
		select {
		case q = <-questions:
		case err := <-failed:
			return err
		}
		var a answer
		var err error
		if q.Kind == askOpen {
			l, err = open(q.Path)
		}
		if err == nil {
			a, err = reply(l, q)
		}
		a.Fault = faultOf(err)
		if err := out.Encode(a); err != nil {
			return fmt.Errorf("answer the agent: %w", err)
		}
	}
}

// reply asks the library.
func reply(l library, q question) (a answer, err error) {
	if l == nil {
		return a, fmt.Errorf("%w: it is not open", nvml.ErrDriver)
	}
	switch q.Kind {
	case askOpen:
		l.Know(q.Known)
		a.Version = l.Version()
		a.Count, err = l.Count()
	case askIdentify:
		a.Facts, err = l.Identify(q.Index)
	case askCondition:
		a.Condition, err = l.Condition(q.Index)
	case askProcesses:
		a.Processes, err = l.Processes(q.Index)
	case askUsed:
		a.Used, err = l.Used(q.Index)
	case askUtilisation:
		a.Utilisation, err = l.Utilisation(q.Index, q.Since)
	default:
		err = fmt.Errorf("%w: question %d is not known", nvml.ErrDriver, q.Kind)
	}
	return a, err
}
