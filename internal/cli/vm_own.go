package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// ownTime is how long an agent is waited for that tells what Divvy gave to virtual machines.
const ownTime = 5 * time.Second

// own is what Divvy has done to this machine's devices: what the system agent tells, or its books where none answers. No agent is
// started for that.
func (a *app) own(ctx context.Context) preflight.Own {
	endpoint := a.endpoint("").System()
	ctx, cancel := context.WithTimeout(ctx, ownTime)
	defer cancel()
	client, err := control.Find(ctx, endpoint)
	var away *control.AwayError
	switch {
	case errors.Is(err, control.ErrNoAgent), errors.As(err, &away), errors.Is(err, fs.ErrPermission):
		return ownInBooks(endpoint.Dir())
	case err != nil:
		return preflight.Own{Unknown: err.Error()}
	}
	all, err := client.Devices(ctx)
	list, fault := client.List(ctx)
	agents := processesOf(client.Info().PID)
	_ = client.Close() // it has answered
	if err != nil {
		return preflight.Own{Unknown: err.Error()}
	}
	own := preflight.Own{Agent: true, Processes: agents, Shares: map[string][]string{}, Unknown: all.Unread}
	if fault != nil {
		list, own.Unknown = &control.Listing{}, cmp.Or(all.Unread, fault.Error())
	}
	for _, t := range list.Tenants {
		for _, share := range t.Shares {
			own.Shares[share.UUID] = append(own.Shares[share.UUID], cmp.Or(t.Name, t.ID))
		}
	}
	for _, c := range all.Claims {
		own.Claims = append(own.Claims, preflight.Claim{Name: c.Name, Form: string(c.Form), Device: c.Device, Members: c.Members, Mediated: c.Mediated, Cluster: c.Cluster != ""})
	}
	for _, f := range all.Functions {
		own.Functions = append(own.Functions, f.Device)
	}
	return own
}

// ownInBooks is what the books in a directory tell, which only root may read. Without any, Divvy has given nothing.
func ownInBooks(dir string) (own preflight.Own) {
	book, err := vfio.Open(vfio.Config{Path: filepath.Join(dir, vfio.FileName)})
	switch {
	case errors.Is(err, fs.ErrPermission):
		return preflight.Own{Unknown: fmt.Sprintf("no agent answers, and only root may read %s", filepath.Join(dir, vfio.FileName))}
	case err != nil:
		return preflight.Own{Unknown: "no agent answers: " + err.Error()}
	}
	defer book.Close()
	for _, e := range book.Entries() {
		if e.Plan.Form == binding.FormFunctions {
			own.Functions = append(own.Functions, e.Plan.Device)
			continue
		}
		if !v1alpha1.Backend(e.Plan.Form).ForMachines() {
			continue
		}
		c := preflight.Claim{Name: e.Owner, Form: string(e.Plan.Form), Device: e.Plan.Device, Members: e.Plan.Members, Cluster: ofCluster(dir, e.Owner)}
		if e.Plan.VGPU != nil {
			c.Mediated = e.Plan.VGPU.UUID
		}
		own.Claims = append(own.Claims, c)
	}
	return own
}

// ofCluster tells whether a claim of the ledger in a directory is a cluster's.
func ofCluster(dir, name string) bool {
	ledger, err := claims.Open(claims.Config{Path: filepath.Join(dir, claims.FileName)})
	if err != nil {
		return false // the book knows nothing of clusters
	}
	all, _ := ledger.List()
	return slices.ContainsFunc(all, func(c claims.Claim) bool { return c.Name == name && c.Cluster != "" })
}

// processesOf are an agent's process and those that it started.
func processesOf(agent int) []int {
	all := []int{agent}
	for _, id := range process.Descendants(agent) {
		all = append(all, id.PID)
	}
	return all
}
