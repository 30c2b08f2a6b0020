package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// gpu is what there is of a GPU, and what pods have of it.
type gpu struct {
	node                     string
	has, memory              uint64
	cores, wholes, tenancies int
}

// exceeded says what is given twice, nil for nothing.
func (g *gpu) exceeded() error {
	switch {
	case g.memory > g.has:
		return fmt.Errorf("%d of %d bytes are given", g.memory, g.has)
	case g.cores > v1alpha1.MaxCores:
		return fmt.Errorf("%d of %d cores are given", g.cores, v1alpha1.MaxCores)
	case g.wholes > 0 && g.tenancies > 1:
		return fmt.Errorf("it is given whole, and %d have it", g.tenancies)
	case g.tenancies > slotsOfGPU:
		return fmt.Errorf("%d have it, more than %d slots", g.tenancies, slotsOfGPU)
	}
	return nil
}

// ledger sums up what pods have by their annotations alone. It shares no code with the extender, which it judges. Methods are
// pure but for the ledger itself.
type ledger struct {
	gpus map[string]*gpu // by UUID
	pods map[types.UID]v1alpha1.PodAssignment
}

func newLedger(fleet []machine) *ledger {
	l := &ledger{gpus: map[string]*gpu{}, pods: map[types.UID]v1alpha1.PodAssignment{}}
	for i := range fleet {
		for _, g := range fleet[i].gpus {
			l.gpus[g.UUID] = &gpu{node: fleet[i].name, has: g.Memory}
		}
	}
	return l
}

// see takes in a pod as it is now, or that it has gone, and returns what is wrong with it.
func (l *ledger) see(pod *corev1.Pod, gone bool) (faults []error) {
	before, known := l.pods[pod.UID]
	if gone || ended(pod) {
		l.count(before, -1)
		delete(l.pods, pod.UID)
		return nil
	}
	if known || pod.Spec.NodeName == "" {
		return nil
	}
	text, asks := pod.Annotations[v1alpha1.RequestAnnotation]
	if !asks {
		return nil
	}
	got, err := answered(pod, text)
	if err != nil {
		return []error{fmt.Errorf("pod %s on %s: %w", pod.Name, pod.Spec.NodeName, err)}
	}
	l.pods[pod.UID] = got
	l.count(got, 1)
	for i := range got.Shares {
		for _, given := range got.Shares[i].GPUs {
			if err := l.wrong(given.UUID, pod.Spec.NodeName); err != nil {
				faults = append(faults, fmt.Errorf("pod %s on %s: GPU %s: %w", pod.Name, pod.Spec.NodeName, given.UUID, err))
			}
		}
	}
	return faults
}

// answered is the assignment of a pod that has a node.
func answered(pod *corev1.Pod, request string) (v1alpha1.PodAssignment, error) {
	asked, err := v1alpha1.ParsePodRequest(request)
	if err != nil {
		return v1alpha1.PodAssignment{}, err
	}
	text, ok := pod.Annotations[v1alpha1.AssignmentAnnotation]
	if !ok {
		return v1alpha1.PodAssignment{}, errUnassigned
	}
	got, err := v1alpha1.ParsePodAssignment(text)
	if err != nil {
		return got, err
	}
	return got, got.Answers(string(pod.UID), &asked)
}

func (l *ledger) wrong(uuid, node string) error {
	g := l.gpus[uuid]
	switch {
	case g == nil:
		return fmt.Errorf("no node has it")
	case g.node != node:
		return fmt.Errorf("node %s has it", g.node)
	}
	return g.exceeded()
}

func (l *ledger) count(a v1alpha1.PodAssignment, sign int) {
	for i := range a.Shares {
		s := &a.Shares[i]
		for _, given := range s.GPUs {
			g := l.gpus[given.UUID]
			if g == nil {
				continue
			}
			g.tenancies += sign
			if s.Whole {
				g.wholes += sign
				continue
			}
			g.memory += uint64(sign) * given.Memory //nolint:gosec // what is taken off was added before
			g.cores += sign * s.Config.Guaranteed(given.Cores)
		}
	}
}

// given is the memory that pods have, in bytes.
func (l *ledger) given() (sum uint64) {
	for _, g := range l.gpus {
		if g.wholes > 0 {
			sum += g.has
			continue
		}
		sum += g.memory
	}
	return sum
}
