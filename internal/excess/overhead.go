package excess

import "time"

// Overhead follows what a share holds by the driver's figures beyond what its pages tell:
// code that is loaded when a kernel is first launched, local memory that grows later. The
// zero value is ready; one goroutine at a time may use it.
//
// The driver's figures may be up to [Lag] late. So the figure falls with the first reading
// that shows less, but it rises only as far as every reading of that time shows, unless the
// share's ledger stood still for as long: then one reading is enough. What a share takes and
// gives back is therefore never taken for overhead.
type Overhead struct {
	bytes   uint64
	shown   [recents]shown
	n, next int
}

// shown is what one reading showed.
type shown struct {
	at        time.Time
	beyond    int64
	operation uint64
}

// NewOverhead follows a share of which so many bytes were known before.
func NewOverhead(bytes uint64) Overhead { return Overhead{bytes: bytes} }

// Bytes is the figure.
func (o *Overhead) Bytes() uint64 { return o.bytes }

// Read takes what the share's processes held and what the ledger told at that time, in
// bytes; operation is the ledger's last one. It reports whether the figure is one to go by:
// not before there were readings for as long as the driver may be late. Readings come in the
// order of time.
func (o *Overhead) Read(now time.Time, held, told, operation uint64) (settled bool) {
	last := shown{at: now, beyond: int64(held) - int64(told), operation: operation}
	o.shown[o.next] = last
	o.next = (o.next + 1) % recents
	o.n = min(o.n+1, recents)
	if last.beyond < int64(o.bytes) {
		o.bytes = uint64(max(0, last.beyond))
	}
	least, quiet := last.beyond, true
	for i := 1; i < o.n; i++ {
		one := &o.shown[(o.next-1-i+2*recents)%recents]
		least, quiet = min(least, one.beyond), quiet && one.operation == operation
		if now.Sub(one.at) < Lag {
			continue
		}
		if quiet {
			least = last.beyond
		}
		o.bytes = max(o.bytes, uint64(max(0, least)))
		return true
	}
	return false
}

// Unknown says that a figure was late or missing. What was known stays.
func (o *Overhead) Unknown() { o.n = 0 }
