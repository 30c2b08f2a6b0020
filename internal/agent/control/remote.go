package control

import (
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/plaintext"
)

// Remote is who uses a share from another host.
type Remote struct {
	// Client is the name in its certificate, and Address where it connected from, as `divvy serve` knows them.
	Client  string `json:"client"`
	Address string `json:"address"`
	// Host and User are the client's own words.
	Host string `json:"host,omitempty"`
	User string `json:"user,omitempty"`
	// Mark tells a command of `divvy run --on` from all others, so that its server finds what is left of its share. It is empty
	// for a share that is used from another host.
	Mark string `json:"mark,omitempty"`
}

// longestWord bounds each word of a [Remote], in bytes.
const longestWord = 256

// Fault says why who asked cannot have said this, nil if they can.
func (r *Remote) Fault() error {
	if r == nil {
		return nil
	}
	if r.Client == "" {
		return Errorf(CodeInvalid, "a share that is used from another host is a client's")
	}
	for _, word := range []string{r.Client, r.Address, r.Host, r.User, r.Mark} {
		if len(word) > longestWord {
			return Errorf(CodeInvalid, "who uses the share from another host is said in at most %d bytes each", longestWord)
		}
	}
	return nil
}

// shownWord is how much of a word lists show.
const shownWord = 40

// Text is who it is, for lists: the client, and where it is.
func (r *Remote) Text() string {
	host := r.Host
	if host == "" {
		host = r.Address
	}
	return fmt.Sprintf("%s on %s", plaintext.Line(r.Client, shownWord), plaintext.Line(host, shownWord))
}

// Allocatable are the GPUs of the listing as the allocator knows them, without names of users. MIG instances are not among
// them.
func (l *Listing) Allocatable() []alloc.GPU {
	gpus := make([]alloc.GPU, 0, len(l.GPUs))
	for _, gpu := range l.GPUs {
		one := alloc.GPU{
			UUID: gpu.UUID, Index: gpu.Index, Model: gpu.Name, Capacity: gpu.Capacity, Granted: gpu.Granted, Cores: gpu.Cores,
			ContextBytes: gpu.ContextBytes, Form: string(gpu.Form.Form()), Fault: gpu.Fault, Slots: gpu.Replicas,
		}
		for _, t := range l.Tenants {
			for _, s := range t.Shares {
				if s.UUID != gpu.UUID {
					continue
				}
				one.Tenants++
				if s.Whole && one.Fault == "" {
					one.Fault = "somebody has the whole GPU"
				}
			}
		}
		if one.Fault == "" {
			one.Fault = gpu.Misgiven
		}
		if gpu.MIG && one.Fault == "" {
			one.Form = string(v1alpha1.BackendMIG)
		}
		if slices.ContainsFunc(l.Waiting, func(w Waiting) bool { return slices.Contains(w.Keeps, gpu.Index) }) && one.Fault == "" {
			one.Fault = "it is kept for who has waited longer"
		}
		gpus = append(gpus, one)
	}
	return gpus
}
