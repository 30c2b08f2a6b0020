package page

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Times is what a tenant's page says of GPU time on one GPU. All of it was
// written by the tenant.
type Times struct {
	Bucket Bucket
	// Workers are those in use, in the order of their numbers.
	Workers []WorkerTimes
}

// WorkerTimes is what one process tells of its work.
type WorkerTimes struct {
	Number int // in the page, 0 to Workers - 1
	Owner  uint32
	// Count numbers the last of Intervals, which are the newest without a gap,
	// the oldest first.
	Count                            uint32
	OpenSince, OpenUntil, Unmeasured uint64
	Intervals                        []Interval
}

// TimeReader reads the times in one state page again and again. It keeps the page
// mapped: the arbiter looks at every page some hundred times a second, and system calls
// would be most of what that costs. Methods are not safe for concurrent use.
type TimeReader struct {
	memory  []byte
	devices []timeReader
}

// timeReader is what is known of one GPU's part.
type timeReader struct {
	reads int
	// known workers are read every time, the others once in a while.
	known int
	times Times
	// rings are what was read of workers. Only workers that were ever in use have
	// one, because shares are many and use few workers.
	rings [Workers]*ring
}

// ring is the intervals of one worker as last read.
type ring struct {
	owner, count uint32
	valid        int
	intervals    [Intervals]Interval
}

const (
	// spare is how many workers beyond the last in use are read each time, so that
	// a new process is seen at once.
	spare = 2
	// fullEvery is the number of reads of which one looks at all workers.
	fullEvery = 16
)

// OpenTimes maps the state page of a tenant with that many GPUs.
func OpenTimes(path string, devices int) (*TimeReader, error) {
	file, err := open(path, os.O_RDONLY, StateMagic, stateSize(devices))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	memory, err := unix.Mmap(int(file.Fd()), 0, int(stateSize(devices)), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map state page: %w", err)
	}
	return &TimeReader{memory: memory, devices: make([]timeReader, devices)}, nil
}

// Close unmaps the page.
func (r *TimeReader) Close() error {
	if err := unix.Munmap(r.memory); err != nil {
		return fmt.Errorf("unmap state page: %w", err)
	}
	return nil
}

// Read reads one GPU's times, 0 to devices - 1. The answer is valid until the
// next call. Whatever the page holds, and also if the tenant has cut it short, it
// returns soon, with times or an error, and reads nothing beyond the page.
func (r *TimeReader) Read(device int) (times *Times, err error) {
	d := &r.devices[device]
	from := SizeOfState + device*SizeOfGPU
	gpu := region(r.memory[from : from+SizeOfGPU])
	err = guard("read GPU times", func() { d.read(gpu) })
	return &d.times, err
}

func (d *timeReader) read(gpu region) {
	d.times.Bucket = gpu[OffsetOfGPUBucket:].bucket()
	d.times.Workers = d.times.Workers[:0]
	look := min(Workers, d.known+spare)
	if d.reads%fullEvery == 0 {
		look = Workers
	}
	d.reads++
	used := 0
	for number := range look {
		worker := gpu[OffsetOfGPUWorker+number*SizeOfWorker:][:SizeOfWorker]
		if worker.u32(OffsetOfWorkerOwner) != 0 {
			used = number + 1
			d.add(number, worker)
		}
	}
	if look == Workers || used > d.known {
		d.known = used
	}
}

// add decodes one worker.
func (d *timeReader) add(number int, worker region) {
	have := d.rings[number]
	if have == nil {
		have = &ring{}
		d.rings[number] = have
	}
	w := WorkerTimes{
		Number: number, Owner: worker.now32(OffsetOfWorkerOwner), Count: worker.now32(OffsetOfWorkerCount),
		OpenSince: worker.u64(OffsetOfWorkerOpenSince), OpenUntil: worker.u64(OffsetOfWorkerOpenUntil),
		Unmeasured: worker.u64(OffsetOfWorkerUnmeasured),
	}
	if have.owner != w.Owner || have.count != w.Count {
		have.read(&w, worker)
	}
	w.Intervals = have.intervals[:have.valid]
	d.times.Workers = append(d.times.Workers, w)
}

// read copies a worker's intervals. Its process may write meanwhile, so it reads owner
// and count again and drops the intervals that may have been overwritten.
func (h *ring) read(w *WorkerTimes, worker region) {
	var copied [SizeOfWorker]byte
	copy(copied[:], worker)
	owner, count := worker.now32(OffsetOfWorkerOwner), worker.now32(OffsetOfWorkerCount)
	newer := min(count-w.Count, Intervals-1)
	valid := min(w.Count, Intervals-1, Intervals-1-newer) // the oldest may be half overwritten
	if owner != w.Owner {
		valid = 0
	}
	h.owner, h.count, h.valid = w.Owner, w.Count, 0
	for i := w.Count - valid; i != w.Count; i++ {
		at := region(copied[OffsetOfWorkerInterval+int(i%Intervals)*SizeOfInterval:])
		h.intervals[h.valid] = Interval{
			Begin: at.u64(OffsetOfIntervalBegin), End: at.u64(OffsetOfIntervalEnd), Charged: at.u64(OffsetOfIntervalCharged),
		}
		h.valid++
	}
}

// now32 reads a word of memory that others write. Nothing that stands after it in the
// program is read before it.
func (r region) now32(at int) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&r[at])))
}

func (v region) bucket() Bucket {
	return Bucket{
		Balance:   int64(v.u64(OffsetOfBucketBalance)),
		Refilled:  v.u64(OffsetOfBucketRefilled),
		Corrected: int64(v.u64(OffsetOfBucketCorrected)),
		Charged:   v.u64(OffsetOfBucketCharged),
		Launches:  v.u64(OffsetOfBucketLaunches),
		Wanted:    v.u64(OffsetOfBucketWanted),
		Waited:    v.u64(OffsetOfBucketWaited),
		Overdrawn: v.u64(OffsetOfBucketOverdrawn),
		Turn:      v.u64(OffsetOfBucketTurn),
		Since:     v.u64(OffsetOfBucketSince),
		HeldBack:  v.u64(OffsetOfBucketHeldBack),
		HeldUntil: v.u64(OffsetOfBucketHeldUntil),
		Yielded:   v.u64(OffsetOfBucketYielded),
	}
}
