package helper

import (
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
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
	Busy(index int, since time.Time) ([]nvml.Sample, error)
	Reading(index int) (nvml.Reading, error)
	ComputeMode(index int) (string, error)
	SetComputeMode(index int, mode string) error
	migReader
	migMaker
}

// socketFD is a helper's end of the connection to its agent.
const socketFD = 3

// Main is the life of a helper process: it answers its agent until that ends or closes the connection. Signals for
// the agent's process group are the agent's to follow.
func Main() error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// It does one thing at a time, a few times a second: waking a second thread for it costs more than the thing. A
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
	d := desk{out: gob.NewEncoder(agent)}
	go func() {
		in := gob.NewDecoder(agent)
		for {
			var q question
			err := in.Decode(&q)
			if err == nil && q.Cut {
				if err = d.cutShort(); err == nil {
					continue
				}
			}
			if err != nil {
				if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
					hungUp()
				}
				failed <- fmt.Errorf("read the agent's question: %w", err)
				return
			}
			questions <- q
		}
	}()
	for {
		select {
		case q := <-questions:
			if err := d.answer(q, open); err != nil {
				return fmt.Errorf("answer the agent: %w", err)
			}
		case err := <-failed:
			return err
		}
	}
}

// desk is where one question lies.
type desk struct {
	library library

	mu      sync.Mutex // held for a moment, and while an answer is sent
	out     *gob.Encoder
	results []result
	// open tells that the question awaits its answer, and busy that a call has not returned.
	open, busy bool
}

// answer answers a question to its end, or until it is cut short.
func (d *desk) answer(q question, open func(path string) (library, error)) error {
	if q.Open {
		return d.send(d.opened(q, open))
	}
	d.mu.Lock()
	d.results, d.open = nil, true
	d.mu.Unlock()
	for _, one := range q.Items {
		if !d.begin() {
			return nil
		}
		r := consult(d.library, one)
		if !d.end(r) {
			return d.send(answer{Results: []result{r}})
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return nil
	}
	d.open = false
	return d.out.Encode(answer{Results: d.results})
}

func (d *desk) send(a answer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.Encode(a)
}

// opened opens the library.
func (d *desk) opened(q question, open func(path string) (library, error)) (a answer) {
	l, err := open(q.Path)
	if err == nil {
		d.library = l
		l.Know(q.Known)
		a.Version = l.Version()
		a.Count, err = l.Count()
	}
	a.Fault = faultOf(err)
	return a
}

// begin reports whether the next call is still wanted.
func (d *desk) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = d.open
	return d.open
}

// end takes a result, and reports whether it is in time.
func (d *desk) end(r result) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = false
	d.results = append(d.results, r)
	return d.open
}

// cutShort answers the question that lies there now. Whoever is in a call then begins no other.
func (d *desk) cutShort() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return nil // its answer is on the way
	}
	d.open = false
	return d.out.Encode(answer{Results: d.results, Busy: d.busy})
}

// consult asks the library.
func consult(l library, one item) (r result) {
	err := fmt.Errorf("%w: it is not open", nvml.ErrDriver)
	switch {
	case l == nil:
	case one.Kind == askIdentify:
		var facts nvml.Facts
		facts, err = l.Identify(one.Index)
		r.Facts = &facts
	case one.Kind == askCondition:
		var condition nvml.Condition
		condition, err = l.Condition(one.Index)
		r.Condition = &condition
	case one.Kind == askProcesses:
		r.Processes, err = l.Processes(one.Index)
	case one.Kind == askUsed:
		r.Used, err = l.Used(one.Index)
		if err == nil {
			r.Instances, _ = l.InstanceMemory(one.Index) // what the driver does not tell is missing
		}
	case one.Kind == askUtilisation:
		r.Utilisation, err = l.Utilisation(one.Index, one.Since)
	case one.Kind == askBusy:
		r.Busy, err = l.Busy(one.Index, one.Since)
	case one.Kind == askReading:
		var reading nvml.Reading
		reading, err = l.Reading(one.Index)
		if err == nil {
			r.Reading, err = json.Marshal(reading)
		}
	case one.Kind == askComputeMode:
		r.Mode, err = l.ComputeMode(one.Index)
	case one.Kind == setComputeMode:
		err = l.SetComputeMode(one.Index, one.Mode)
	case one.Kind >= askMIGMode && one.Kind <= destroyMIGCompute:
		r.MIG, err = consultMIG(l, one)
	default:
		err = fmt.Errorf("%w: question %d is not known", nvml.ErrDriver, one.Kind)
	}
	r.Fault = faultOf(err)
	return r
}
