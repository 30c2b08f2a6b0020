package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// clientFaults is how many clients of MPS make a fatal fault.
const clientFaults = 20

// divided is mig.faults where MPS divides the faulty instance among two shares: the client beside each fault must notice it,
// and no program in another instance.
func (b *bench) divided(dir, machine string, shares []spot) ([]measurement.Row, error) {
	d := daemon{program: filepath.Join(machine, mps.ControlProgram), dirs: mps.DirsOf(dir, shares[0].on.UUID), uuid: shares[0].on.UUID}
	if err := d.dirs.Make(); err != nil {
		return nil, err
	}
	var clients []spot
	for _, name := range []string{"faulty", "beside"} {
		c := spot{filepath.Join(dir, name), shares[0].on}
		if err := b.tenantAt(c, machine, d.dirs.Pipe, c.on.Total/4); err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	noticed := 0
	failed, err := b.beside(shares[1:], func() error {
		for range clientFaults {
			harmed, err := b.clientFault(d, clients[0], clients[1])
			if err != nil {
				return err
			}
			if harmed {
				noticed++
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("make faults under MPS: %w", err)
	}
	in := measurement.Of("mig.faults", "programs", clientFaults, measurement.Higher, command, float64(noticed))
	in.Case = "clients of MPS beside the faulty one"
	in.Note = fmt.Sprintf("of %d on the faulty instance, one for each fatal fault of another client there, that fail: they share its server", clientFaults)
	out := measurement.Of("mig.faults", "programs", 0, measurement.Lower, command, float64(failed))
	out.Case = "MPS on the faulty instance, other instances"
	out.Note = fmt.Sprintf("of %d in the other instances, that failed beside %d fatal faults of clients in one", len(shares)-1, clientFaults)
	return []measurement.Row{in, out}, nil
}

// clientFault has a client of a new daemon make a fault beside another one, and reports whether that fails.
func (b *bench) clientFault(d daemon, faulty, beside spot) (harmed bool, err error) {
	if err := d.command("-d"); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, d.command("")) }()
	n, err := b.work(beside.dir)
	if err != nil {
		return false, err
	}
	defer n.End()
	if err := b.fault(faulty.dir); err != nil {
		return false, err
	}
	return failedBy(n)
}

// daemon is a control daemon of an instance.
type daemon struct {
	program, uuid string
	dirs          mps.Dirs
}

// command starts the daemon with an option, and ends it without one.
func (d daemon) command(option string) error {
	cmd := exec.Command(d.program)
	if option != "" {
		cmd.Args = append(cmd.Args, option)
	} else {
		cmd.Stdin = strings.NewReader("quit -t 1\n")
	}
	cmd.Env = append(cmd.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+d.dirs.Pipe, "CUDA_MPS_LOG_DIRECTORY="+d.dirs.Log, "CUDA_VISIBLE_DEVICES="+d.uuid)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("give the control daemon of MPS %q: %w: %s", option, err, text)
	}
	return nil
}
