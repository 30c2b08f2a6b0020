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
	// Workers are those in use, by their place in the page.
	Workers []WorkerTimes
}

// WorkerTimes is what one process tells of its work.
type WorkerTimes struct {
	Place int
	Owner uint32
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
	// intervals is the memory behind times.Workers, of the places that were ever in
	// use: there are few, and many shares.
	intervals [Workers]*[Intervals]Interval
}

// readings are the memory for one reading, shared by all readers.
var readings = sync.Pool{New: func() any { return new([Workers * SizeOfWorker]byte) }}

const (
	// spare workers are read beyond the last in use: a process that comes is
	// seen at once.
	spare = 2
	// fullEvery is how often all places are looked at.
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
// next call. Nothing in the page can make it fail otherwise than by an error,
// take long, or read more than the page.
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
	for place := range look {
		v := view(reading[place*SizeOfWorker:])
		if v.u32(OffsetOfWorkerOwner) == 0 {
			continue
		}
		used = place + 1
		if err := r.add(d, place, base, v); err != nil {
			return nil, err
		}
	}
	if look == Workers || used > d.known {
		d.known = used
	}
	return &d.times, nil
}

// Bucket reads one GPU's bucket alone, which changes with whatever its processes
// do.
func (r *TimeReader) Bucket(device int) (Bucket, error) {
	var data [SizeOfBucket]byte
	if err := r.at(int64(SizeOfState+device*SizeOfGPU+OffsetOfGPUBucket), data[:]); err != nil {
		return Bucket{}, err
	}
	return view(data[:]).bucket(), nil
}

// add takes up one worker. Its process may have written on while the page was
// read: what is new since the last time counts only if the page, asked again,
// says that it was not overwritten.
func (r *TimeReader) add(d *timeReader, place int, base int64, v view) error {
	w := WorkerTimes{
		Place: place, Owner: v.u32(OffsetOfWorkerOwner), Count: v.u32(OffsetOfWorkerCount),
		OpenSince: v.u64(OffsetOfWorkerOpenSince), OpenUntil: v.u64(OffsetOfWorkerOpenUntil),
		Unmeasured: v.u64(OffsetOfWorkerUnmeasured),
	}
	valid := min(w.Count, Intervals-1) // the oldest may be half overwritten
	if d.counts[place] != w.Count {
		var again [SizeOfInterval]byte
		if err := r.at(base+OffsetOfGPUWorker+int64(place)*SizeOfWorker, again[:8]); err != nil {
			return err
		}
		owner, count := view(again[:]).u32(OffsetOfWorkerOwner), view(again[:]).u32(OffsetOfWorkerCount)
		newer := min(count-w.Count, Intervals-1)
		valid = min(valid, Intervals-1-newer)
		if owner != w.Owner {
			valid = 0
		}
	}
	d.counts[place] = w.Count
	if d.intervals[place] == nil {
		d.intervals[place] = new([Intervals]Interval)
	}
	w.Intervals = d.intervals[place][:0]
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

func (v view) bucket() Bucket {
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
