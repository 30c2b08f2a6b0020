package helper

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// Lone asks about one GPU while no other process of the agent's has the driver's library open.
type Lone struct {
	driver *Driver
	gpu    int
}

// Alone ends every helper, calls do, and lets helpers begin again: a GPU that anybody holds cannot change its MIG mode,
// and the library holds every GPU about which it was asked. Meanwhile all other questions are answered with
// [nvml.ErrLetGo], and changes of other GPUs wait. It fails where a helper cannot be ended because the driver does not answer it,
// or where something else of the agent's keeps the driver open.
func (d *Driver) Alone(gpu int, do func(Lone) error) error {
	d.lone.Lock()
	defer d.lone.Unlock()
	if d.config.LetGo != nil { // first, for it may wait, and may have to ask helpers
		release, err := d.config.LetGo()
		if err != nil {
			return fmt.Errorf("let go of the driver: %w", err)
		}
		defer release()
	}
	back, err := d.letGo(gpu)
	defer back()
	if err != nil {
		return err
	}
	return do(Lone{d, gpu})
}

// letGo ends the helpers and keeps others from beginning until back is called.
func (d *Driver) letGo(gpu int) (back func(), err error) {
	d.mu.Lock()
	d.away = true
	seats := map[*seat]bool{d.common: true}
	for _, g := range d.gpus {
		seats[g.seat] = true
	}
	count := d.count
	d.mu.Unlock()
	for s := range seats {
		d.retire(s, func() {})
	}
	taken := d.holdChangers(count, gpu)
	back = func() {
		for _, c := range taken {
			c.turn <- struct{}{}
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.away = false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range seats {
		if s.helper != nil {
			return back, fmt.Errorf("let go of the driver: %w", silent{s.index(), d.config.Now()})
		}
	}
	for _, c := range taken {
		if c.left != nil {
			return back, fmt.Errorf("let go of the driver: %w", silent{everyGPU, c.begun})
		}
	}
	return back, nil
}

// holdChangers waits until nobody changes another GPU, ends the processes for that, and keeps their turns.
func (d *Driver) holdChangers(count, gpu int) (taken []*changer) {
	for other := range count {
		if other == gpu {
			continue
		}
		c := d.changer(other)
		select {
		case <-c.turn:
		case <-d.closed:
			return taken
		}
		taken = append(taken, c)
		if c.helper != nil {
			_ = d.endChange(c, everyGPU, nil) // it was not asked anything
		}
	}
	return taken
}

// MIGMode is [nvml.Library.MIGMode].
func (l Lone) MIGMode() (nvml.MIGMode, error) {
	r, err := l.driver.changeMIG(l.gpu, askMIGMode, migItem{})
	return r.Mode, err
}

// MIGInstances is [nvml.Library.MIGInstances].
func (l Lone) MIGInstances() ([]nvml.MIGInstance, error) {
	r, err := l.driver.changeMIG(l.gpu, askMIGInstances, migItem{})
	return r.Instances, err
}

// SetMIGMode is [nvml.Library.SetMIGMode]. What is asked next finds the GPU anew.
func (l Lone) SetMIGMode(on bool) error {
	_, err := l.driver.changeMIG(l.gpu, setMIGMode, migItem{On: on})
	l.driver.dismiss(l.driver.changer(l.gpu))
	return err
}
