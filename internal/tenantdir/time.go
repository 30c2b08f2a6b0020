package tenantdir

import (
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

// Time is a tenant's GPU time as the arbiter keeps it open: what its processes
// told, and what they are granted.
type Time struct {
	Dir     Dir
	Budgets *page.Budgets
	Times   *page.TimeReader
	// Adopted is true for a tenant whose processes know another directory: pulse pages
	// that are put into this one are seen by nobody.
	Adopted bool
}

// OpenTime opens the pages of a tenant for the arbiter.
func (*Tenants) OpenTime(t backend.Tenant) (*Time, error) {
	d := Dir(t.Dir)
	config, adopted := d.heard()
	budgets, err := page.OpenBudgets(config)
	if err != nil {
		return nil, err
	}
	if budgets.Devices() != devicesOf(&t) {
		return nil, errors.Join(fmt.Errorf("%w: %d GPUs in the page of %d shares", page.ErrCorrupt, budgets.Devices(), len(t.Shares)), budgets.Close())
	}
	times, err := page.OpenTimes(d.State(), devicesOf(&t))
	if err != nil {
		return nil, errors.Join(err, budgets.Close())
	}
	return &Time{Dir: d, Budgets: budgets, Times: times, Adopted: adopted}, nil
}

// OpenMeter opens the pages of a tenant for what the driver tells of its overhead.
func (*Tenants) OpenMeter(t backend.Tenant) (*page.Meter, error) {
	d := Dir(t.Dir)
	config, _ := d.heard()
	return page.OpenMeter(config, d.State(), devicesOf(&t))
}

// heard is the config page that the tenant's processes read. That of one that was taken
// over is another than the agent's.
func (d Dir) heard() (config string, adopted bool) {
	if d.Adopted() {
		return d.Theirs(), true
	}
	return d.Config(), false
}

// Close closes the pages.
func (t *Time) Close() error {
	return errors.Join(t.Budgets.Close(), t.Times.Close())
}

// MakePulse makes the page in which a share tells when it has work, owned by uid
// if that is not negative.
func (t *Time) MakePulse(device, uid int) error {
	return page.CreatePulse(t.Dir.Pulse(device), uid)
}

// LinkBeat lets a share give way to another, whose pulse page it finds as its
// page number k.
func (t *Time) LinkBeat(device, k int, other *Time, otherDevice int) error {
	return page.LinkBeat(other.Dir.Pulse(otherDevice), t.Dir.Beat(device, k))
}

// HasBeat reports whether a share's page number k is the other's pulse page.
func (t *Time) HasBeat(device, k int, other *Time, otherDevice int) (bool, error) {
	return page.SameFile(other.Dir.Pulse(otherDevice), t.Dir.Beat(device, k))
}

// UnlinkBeat takes a share's page number k away. That there is none is no error.
func (t *Time) UnlinkBeat(device, k int) error {
	return page.UnlinkBeat(t.Dir.Beat(device, k))
}
