package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
	"github.com/divvy-gpu/divvy/internal/process"
)

// unserved is a machine of which no agent tells anything, as its driver tells of it.
type unserved struct {
	// Machine is the simulated machine's name, empty for the real one.
	Machine string `json:"machine,omitempty"`
	// Driver is the driver's version.
	Driver string        `json:"driver,omitempty"`
	GPUs   []control.GPU `json:"gpus"`
	// Processes are all that use the GPUs, in whatever share.
	Processes []control.Outside `json:"processes,omitempty"`
	// Notes say which GPUs are missing, and why.
	Notes []string `json:"notes,omitempty"`
	// Fault says why the driver cannot be asked, else empty.
	Fault string `json:"fault,omitempty"`
}

// drivers are the processes that ask the drivers of machines without an agent, by machine. They are kept from list to
// list: it takes time to open a driver.
type drivers struct {
	app  *app
	open map[string]*helper.Driver
	// missing are the machines without a driver, each with the moment when it was looked for.
	missing map[string]time.Time
}

// missingAgain is how long nobody looks again for a driver that was not there: many folders are read for it.
const missingAgain = 10 * time.Second

func (a *app) drivers() *drivers {
	return &drivers{a, map[string]*helper.Driver{}, map[string]time.Time{}}
}

func (d *drivers) close() {
	for name := range d.open {
		d.forget(name)
	}
}

func (d *drivers) forget(machine string) {
	if open := d.open[machine]; open != nil {
		_ = open.Close() // it ends with this program
		delete(d.open, machine)
	}
}

// survey is what agents tell and, of machines without one, their drivers.
func (d *drivers) survey(ctx context.Context, machine string) (survey, error) {
	found, err := d.app.survey(ctx, machine)
	if err != nil {
		return found, err
	}
	if machine == "" {
		if found.remote, err = sharesAway(found.agents); err != nil {
			return found, err
		}
	}
	for _, l := range found.agents {
		d.forget(l.Machine)
	}
	names := slices.DeleteFunc(sortedKeys(found.silent), func(name string) bool {
		since, missing := d.missing[name]
		return missing && time.Since(since) < missingAgain
	})
	opened := atOnce(names, func(name string) *helper.Driver { return d.open[name] })
	type answer struct {
		told   unserved
		driver *helper.Driver
		err    error
	}
	for i, one := range atOnce(names, func(name string) answer {
		asked, err := opened[slices.Index(names, name)], error(nil)
		if asked == nil {
			if asked, err = d.app.openDriver(found.silent[name]); err != nil {
				return answer{err: err}
			}
		}
		return answer{told: describeUnserved(asked), driver: asked}
	}) {
		one.told.Machine = names[i]
		switch {
		case one.err == nil:
			d.open[names[i]] = one.driver
			delete(d.missing, names[i])
			found.unserved = append(found.unserved, one.told)
		case errors.Is(one.err, driver.ErrNotFound) || errors.Is(one.err, driver.ErrNested):
			d.missing[names[i]] = time.Now()
		default:
			found.unserved = append(found.unserved, unserved{Machine: names[i], GPUs: []control.GPU{}, Fault: one.err.Error()})
		}
	}
	return found, nil
}

// openDriver lets a process of its own open the driver of the machine that an agent would serve.
func (a *app) openDriver(at control.Endpoint) (*helper.Driver, error) {
	found, err := driver.Finder{Root: "/", Instance: at.Simgpu, LibraryPath: filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))}.Find()
	if err != nil {
		return nil, err
	}
	program, err := a.tree.Divvy()
	if err != nil {
		return nil, err
	}
	library := found.Chosen[driver.NVML]
	if at.Simgpu != "" {
		library = filepath.Join(at.Simgpu, string(driver.NVML)) // which finds the machine's state beside itself
	}
	return helper.Open(helper.Config{
		Start: helper.Start(program, daemon.HelperCommand), Library: library, Limits: helper.Usual, Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
}

// describeUnserved is what a driver tells of its GPUs.
func describeUnserved(d *helper.Driver) unserved {
	u := unserved{Driver: d.Version().Driver, GPUs: []control.GPU{}}
	gpus, err := d.GPUs()
	if err != nil {
		u.Fault = err.Error()
		return u
	}
	var indexes []int
	var since []time.Time
	for _, g := range gpus {
		indexes, since = append(indexes, g.Index), append(since, time.Now().Add(-nvml.Lately))
	}
	holdings, readings := d.Holdings(indexes), d.Readings(indexes)
	loads := d.Utilisations(indexes, since)
	for i, g := range gpus {
		one := control.GPU{
			Index: g.Index, UUID: g.UUID, Name: g.Name, PCI: g.PCI, Total: g.Total, Reserved: g.Reserved, Capacity: g.Total - min(g.Reserved, g.Total),
		}
		if readings[i].Err == nil {
			one.Reading = &readings[i].Reading
			one.MIG = one.Reading.MIG != nil && *one.Reading.MIG
		}
		if holdings[i].Unread == nil {
			one.Used = &holdings[i].Used
		} else {
			one.Fault = holdings[i].Unread.Error()
			u.Notes = append(u.Notes, fmt.Sprintf("! GPU %d: %s", g.Index, one.Fault))
		}
		u.GPUs = append(u.GPUs, one)
		u.Processes = append(u.Processes, processesOn(g, holdings[i], loads[i])...)
	}
	silent, _ := d.LeftOut()
	refused := d.Refused()
	for _, gpu := range silent {
		u.Notes = append(u.Notes, "! "+control.LeftOutText(gpu, refused))
	}
	return u
}

// processesOn are the processes on a GPU.
func processesOn(g nvml.GPU, held nvml.Holding, load nvml.Load) (all []control.Outside) {
	busy := nvml.Latest(load.Samples)
	for _, p := range held.Processes {
		one := control.Outside{PID: p.PID, User: ownerOf(p.PID), Command: process.Command(p.PID), UUID: g.UUID}
		if !p.Hidden {
			one.Used = new(p.Used)
		}
		if load.Err == nil {
			one.Percent = new(busy[p.PID])
		}
		all = append(all, one)
	}
	return all
}

// ownerOf is the user of a process, "" for one that has ended.
func ownerOf(pid int) string {
	if uid := process.Owner(pid); uid >= 0 {
		return process.UserName(uid)
	}
	return ""
}
