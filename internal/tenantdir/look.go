package tenantdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Look implements [backend.Observer].
func (ts *Tenants) Look(ctx context.Context, t backend.Tenant) (backend.Figures, error) {
	d := Dir(t.Dir)
	figures := backend.Figures{Excess: ts.cut(ctx, t)}
	now, live, err := d.read(devicesOf(&t))
	// Nobody is told when the last descriptor of exported memory is closed.
	if err == nil && (now.Dead() || now.ByDescriptor()) {
		before, dead := now.Usage, now.Dead()
		var done bool
		done, err = ts.reaps.run(ctx, costsOf(t), d, func(ctx context.Context) error { return ts.config.Reap(ctx, d, reaperUID(t)) })
		if err == nil {
			now, live, err = d.read(devicesOf(&t))
		}
		if err == nil && done && dead { // some may be reaped although others are not yet
			figures.Reaped, figures.Freed = !now.Dead(), freed(before, now.Usage)[:len(t.Shares)]
		}
	}
	figures.Live = live
	if now != nil {
		ts.strangers.name(costsOf(t), now.Processes, ts.config.PIDNamespace)
		if t.Swap {
			fold(now)
		}
		ts.fill(&figures, now)
	}
	return figures, err
}

// Alive implements [backend.Observer].
func (ts *Tenants) Alive(t backend.Tenant) (bool, error) {
	live, err := page.AnyLive(Dir(t.Dir).State())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return live, err
}

// read returns the state page and whether anybody lives. Damage to a page hides what
// is charged, and a page may name nobody; neither hides who lives: locks are the
// kernel's. Where the agent itself lacks the means to ask for them, somebody is assumed
// to live.
func (d Dir) read(devices int) (now *page.Snapshot, live bool, err error) {
	now, err = page.ReadState(d.State(), devices)
	if err == nil && now.Live() {
		return now, true, nil
	}
	live, lockErr := page.AnyLive(d.State())
	return now, live && lockErr == nil || exhausted(lockErr), err
}

// exhausted reports whether an error is this process's want of files or memory.
func exhausted(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// fold adds what a swap share keeps on its GPUs to what has turns there.
func fold(now *page.Snapshot) {
	gpus := len(now.Usage) / 2
	for i := range gpus {
		u, kept := &now.Usage[i], &now.Usage[gpus+i]
		u.Kept = kept.Used
		u.Used, u.Pending, u.Overhead = u.Used+kept.Used, u.Pending+kept.Pending, u.Overhead+kept.Overhead
		u.ByDescriptor, u.Peak = u.ByDescriptor+kept.ByDescriptor, u.Peak+kept.Peak
		u.Refusals = u.Refusals.With(kept.Refusals)
		for j := range now.Processes {
			now.Processes[j].Used[i] += now.Processes[j].Used[gpus+i]
		}
	}
	now.Usage = now.Usage[:gpus]
	for j := range now.Processes {
		now.Processes[j].Used = now.Processes[j].Used[:gpus]
	}
}

func (ts *Tenants) fill(f *backend.Figures, now *page.Snapshot) {
	for _, u := range now.Usage {
		f.Usage = append(f.Usage, backend.Usage{
			Used: u.Used, Kept: u.Kept, Pending: u.Pending, Overhead: u.Overhead, ByDescriptor: u.ByDescriptor, Peak: u.Peak, Copied: u.Copied, Awaited: u.Awaited, Refusals: refusals(&u.Refusals),
		})
	}
	for _, p := range now.Processes {
		f.Processes = append(f.Processes, backend.Process{PID: ts.hostPID(p), Live: p.Live, Used: p.Used})
	}
}

// refusals dates the last one by this machine's clock. A page that names a later moment
// than now means now.
func refusals(r *page.Refusals) *backend.Refusals {
	if r.ByLimit == 0 && r.ByGPU == 0 {
		return nil
	}
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // which every kernel has
	ago := uint64(now.Nano()) - min(r.At, uint64(now.Nano()))
	return &backend.Refusals{
		ByLimit: uint64(r.ByLimit), ByGPU: uint64(r.ByGPU), Largest: r.Largest, Last: r.Last,
		At: time.Now().Add(-time.Duration(ago)), LastByGPU: r.LastByGPU,
	}
}

func freed(before, after []page.Usage) []uint64 {
	amounts := make([]uint64, len(after))
	for i := range after {
		amounts[i] = before[i].Used - min(before[i].Used, after[i].Used)
	}
	return amounts
}

// reaperUID is the user as whom a tenant's dead are reaped: its own or, where
// that may be any, one without rights.
func reaperUID(t backend.Tenant) int {
	if t.Layer == backend.LayerContainer && os.Getuid() == 0 {
		return process.Nobody
	}
	return t.User()
}

// slack is how much more memory a file may take than it has bytes: a tmpfs may
// give it huge pages.
const slack = 4 << 20

// cut takes back what a tenant has beyond its pages, and says what that was. The
// pages lie in a file system of the whole machine, in which a container could
// otherwise write without end.
func (ts *Tenants) cut(ctx context.Context, t backend.Tenant) (excess []string) {
	d := Dir(t.Dir)
	sizes := map[string]int64{d.State(): page.SizeOfState + int64(devicesOf(&t))*page.SizeOfGPU}
	for i := range t.Shares {
		sizes[d.Pulse(i)] = page.SizeOfPulse
	}
	for path, size := range sizes {
		taken, err := d.cutFile(path, size)
		if err != nil {
			ts.config.Log.WarnContext(ctx, "cannot cut a tenant's page", "tenant", t.Name, "error", err)
		} else if taken > 0 {
			excess = append(excess, fmt.Sprintf("its file %s took %d bytes more than its page has: they were cut off", filepath.Base(path), taken))
		}
	}
	return excess
}

// cutFile returns how many bytes it took back.
func (d Dir) cutFile(path string, size int64) (taken int64, err error) {
	var stat unix.Stat_t
	if unix.Lstat(path, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, nil //nolint:nilerr // whoever reads the page reports what is wrong with it
	}
	const block = 512 // stat(2)
	taken = max(stat.Size, stat.Blocks*block-slack) - size
	if taken <= 0 {
		return 0, nil
	}
	if _, err := page.ReadConfig(d.Config()); err != nil {
		return 0, nil //nolint:nilerr // pages of another layout may be longer, and libraries use all of them
	}
	// Blocks beyond the end of a file go when it becomes shorter.
	return taken, shorten(path, max(stat.Size, size+1), size)
}

// shorten makes a file as long as each of the sizes in turn. Where its directory is
// the tenant's, another name may lead elsewhere by now.
func shorten(path string, sizes ...int64) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.Join(fmt.Errorf("%s is no regular file", path), err, file.Close())
	}
	var faults []error
	for _, size := range sizes {
		faults = append(faults, file.Truncate(size))
	}
	return errors.Join(append(faults, file.Close())...)
}
