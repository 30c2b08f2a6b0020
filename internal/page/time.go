package page

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
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

// TimeReader reads the times in one state page again and again. It keeps the
// page open, reads it with pread(2) as [ReadState] does, and looks only at the
// workers that were in use lately. Methods are not safe for concurrent use.
type TimeReader struct {
	file    *os.File
	devices []timeReader
}

// timeReader is what is known of one GPU's part.
type timeReader struct {
	reads int
	// known workers are read every time, the others once in a while.
	known  int
	counts [Workers]uint32
	times  Times
	// intervals is the memory behind times.Workers. Only workers that were ever in
	// use have some, because shares are many and use few workers.
	intervals [Workers]*[Intervals]Interval
}

// readings are the memory for one reading, shared by all readers.
var readings = sync.Pool{New: func() any { return new([Workers * SizeOfWorker]byte) }}

const (
	// spare is how many workers beyond the last in use are read each time, so that
	// a new process is seen at once.
	spare = 2
	// fullEvery is the number of reads of which one looks at all workers.
	fullEvery = 32
)

// OpenTimes opens the state page of a tenant with that many GPUs.
func OpenTimes(path string, devices int) (*TimeReader, error) {
	file, err := open(path, os.O_RDONLY, StateMagic, stateSize(devices))
	if err != nil {
		return nil, err
	}
	return &TimeReader{file: file, devices: make([]timeReader, devices)}, nil
}

// Close closes the page.
func (r *TimeReader) Close() error { return r.file.Close() }

// Read reads one GPU's times, 0 to devices - 1. The answer is valid until the
// next call. Whatever the page holds, it returns soon, with times or an error,
// and reads nothing beyond the page.
func (r *TimeReader) Read(device int) (*Times, error) {
	d := &r.devices[device]
	bucket, err := r.Bucket(device)
	if err != nil {
		return nil, err
	}
	d.times.Bucket = bucket
	base := int64(SizeOfState + device*SizeOfGPU)
	reading, _ := readings.Get().(*[Workers * SizeOfWorker]byte) // nothing else is put there
	defer readings.Put(reading)
	look := min(Workers, d.known+spare)
	if d.reads%fullEvery == 0 {
		look = Workers
	}
	d.reads++
	if err := r.at(base+OffsetOfGPUWorker, reading[:look*SizeOfWorker]); err != nil {
		return nil, err
	}
	d.times.Workers = d.times.Workers[:0]
	used := 0
	for number := range look {
		v := region(reading[number*SizeOfWorker:])
		if v.u32(OffsetOfWorkerOwner) == 0 {
			continue
		}
		used = number + 1
		if err := r.add(d, number, base, v); err != nil {
			return nil, err
		}
	}
	if look == Workers || used > d.known {
		d.known = used
	}
	return &d.times, nil
}

// Bucket reads one GPU's bucket alone, which changes whenever one of its processes
// launches or waits.
func (r *TimeReader) Bucket(device int) (Bucket, error) {
	var data [SizeOfBucket]byte
	if err := r.at(int64(SizeOfState+device*SizeOfGPU+OffsetOfGPUBucket), data[:]); err != nil {
		return Bucket{}, err
	}
	return region(data[:]).bucket(), nil
}

// add decodes one worker. Its process may have written while the page was read, so
// it reads owner and count again and drops the intervals that may have been
// overwritten meanwhile.
func (r *TimeReader) add(d *timeReader, number int, base int64, v region) error {
	w := WorkerTimes{
		Number: number, Owner: v.u32(OffsetOfWorkerOwner), Count: v.u32(OffsetOfWorkerCount),
		OpenSince: v.u64(OffsetOfWorkerOpenSince), OpenUntil: v.u64(OffsetOfWorkerOpenUntil),
		Unmeasured: v.u64(OffsetOfWorkerUnmeasured),
	}
	valid := min(w.Count, Intervals-1) // the oldest may be half overwritten
	if d.counts[number] != w.Count {
		var again [SizeOfInterval]byte
		if err := r.at(base+OffsetOfGPUWorker+int64(number)*SizeOfWorker, again[:8]); err != nil {
			return err
		}
		owner, count := region(again[:]).u32(OffsetOfWorkerOwner), region(again[:]).u32(OffsetOfWorkerCount)
		newer := min(count-w.Count, Intervals-1)
		valid = min(valid, Intervals-1-newer)
		if owner != w.Owner {
			valid = 0
		}
	}
	d.counts[number] = w.Count
	if d.intervals[number] == nil {
		d.intervals[number] = new([Intervals]Interval)
	}
	w.Intervals = d.intervals[number][:0]
	for i := w.Count - valid; i != w.Count; i++ {
		at := v[OffsetOfWorkerInterval+int(i%Intervals)*SizeOfInterval:]
		w.Intervals = append(w.Intervals, Interval{
			Begin: at.u64(OffsetOfIntervalBegin), End: at.u64(OffsetOfIntervalEnd), Charged: at.u64(OffsetOfIntervalCharged),
		})
	}
	d.times.Workers = append(d.times.Workers, w)
	return nil
}

func (r *TimeReader) at(offset int64, into []byte) error {
	n, err := r.file.ReadAt(into, offset)
	if errors.Is(err, io.EOF) || err == nil && n < len(into) {
		return fmt.Errorf("%w: %d of %d bytes can be read", ErrCorrupt, n, len(into))
	}
	if err != nil {
		return fmt.Errorf("read state page: %w", err)
	}
	return nil
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
	}
}
