package ledger

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// mostQuestions bounds the questions that are remembered.
const mostQuestions = 256

// question is everything that decides where a pod fits.
type question struct {
	request, models, prefer string
	cpu                     int64
	memory                  uint64
}

// asked is a question that was read. Pods that ask for the same have one.
type asked struct {
	request v1alpha1.PodRequest
	pod     alloc.Pod
	// fits rates nodes for the pod, and bare for one that asks nothing of the host.
	fits, bare *alloc.Ratings
	// varies is as in serving; of tells of which varieties and GPUs the selectors were evaluated.
	selects, varies bool
	of              [2]int
	// dear is why nothing is said of a question whose selectors cost too much for these.
	dear error
}

// ask reads what a pod asks. The error is [ErrPod].
func (l *Ledger) ask(pod *corev1.Pod) (*asked, error) {
	v := viewOfPod(pod)
	if v.request == "" {
		return nil, fmt.Errorf("%w: it has no annotation %s", ErrPod, v1alpha1.RequestAnnotation)
	}
	return l.question(v)
}

func (l *Ledger) question(v podView) (*asked, error) {
	id := question{v.request, v.models, v.prefer, v.cpu, v.memory}
	q := l.questions[id]
	if q == nil {
		request, err := v1alpha1.ParsePodRequest(v.request)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPod, err)
		}
		q = &asked{request: request}
	}
	err := l.renew(q, v)
	if err != nil && q.dear == nil {
		return nil, err
	}
	if l.questions[id] == nil {
		if len(l.questions) >= mostQuestions {
			clear(l.questions)
		}
		l.questions[id] = q
	}
	if err != nil {
		return nil, err
	}
	return q, nil
}

// renew makes the pod of a question for the GPUs that there are now.
func (l *Ledger) renew(q *asked, v podView) error {
	now := [2]int{l.varieties.changed, l.varieties.gpus}
	if q.fits != nil && (!q.selects || q.of[0] == now[0] && (!q.varies || q.of == now)) {
		return nil
	}
	if q.dear != nil && q.of == now {
		return q.dear
	}
	// Whatever fails below leaves no answer: one for the GPUs before would stand for those that there are now.
	q.fits, q.bare = nil, nil
	q.of, q.varies, q.selects, q.dear = now, false, false, nil
	l.selectors.spent = 0
	q.pod = alloc.Pod{CPU: v.cpu, HostMemory: v.memory}
	for i := range q.request.Shares {
		r, err := l.requestOf(q, &q.request.Shares[i], v)
		if errors.Is(err, errDear) {
			q.dear = err
		}
		if err != nil {
			return err
		}
		q.pod.Claims = append(q.pod.Claims, []alloc.Request{r})
	}
	bare := q.pod
	bare.CPU, bare.HostMemory = 0, 0
	var wrong [2]error
	q.fits, wrong[0] = l.inv.Ratings(&q.pod)
	q.bare, wrong[1] = l.inv.Ratings(&bare)
	if err := errors.Join(wrong[:]...); err != nil {
		q.fits = nil
		return fmt.Errorf("%w: %s", ErrPod, oneLine(err.Error()))
	}
	return nil
}

// requestOf is what is asked of the allocator for a share.
func (l *Ledger) requestOf(q *asked, s *v1alpha1.ShareRequired, v podView) (alloc.Request, error) {
	r := alloc.Request{Count: s.GPUs, Whole: s.Whole, Models: "", Prefer: v1alpha1.GPUPreference(v.prefer)}
	models := v1alpha1.GPUModels(v.models)
	if !s.Whole {
		r.Memory, r.Cores = s.Amount(), s.Config.Guaranteed(s.Cores)
		if s.Config.GPUModels != "" {
			models = s.Config.GPUModels
		}
		if s.Config.GPUPrefer != "" {
			r.Prefer = s.Config.GPUPrefer
		}
	}
	models, err := v1alpha1.ParseGPUModels(string(models))
	if err == nil {
		r.Prefer, err = v1alpha1.ParseGPUPreference(string(r.Prefer))
	}
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrPod, err)
	}
	r.Models = alloc.Names(strings.Join(models.Names(), "|"))
	if s.SameNUMA {
		r.Together = alloc.PlaceNUMA
	}
	serving, err := l.serving(s.Selectors)
	if err != nil {
		return r, fmt.Errorf("share %q: %w", s.Name, err)
	}
	r.Classes, r.Among, r.AvoidGPUs = serving.classes, serving.among, serving.avoid
	if r.Models == "" && len(s.Selectors) > 0 {
		r.Models = l.varieties.models(r.Classes)
	}
	q.selects, q.varies = q.selects || len(s.Selectors) > 0, q.varies || serving.varies
	return r, nil
}

// observe tells the policy of a pod that has arrived.
func (l *Ledger) observe(v podView) {
	if v.node != "" {
		return
	}
	if q, err := l.question(v); err == nil {
		l.inv.ObservePod(&q.pod)
	}
}

// update has the ratings of a question tell of what there is now. It is called before anything is asked of them, and after
// [Ledger.flush].
func (q *asked) update() {
	q.fits.Update()
	if q.pod.CPU != 0 || q.pod.HostMemory != 0 {
		q.bare.Update()
	}
}

// at returns the ratings by which a pod fits on a node, nil for none. Where only the host has too little, it fits: the
// scheduler of Kubernetes counts processors and memory, and knows more of them.
func (q *asked) at(node int) *alloc.Ratings {
	if _, ok := q.fits.Key(node); ok {
		return q.fits
	}
	if q.pod.CPU == 0 && q.pod.HostMemory == 0 {
		return nil
	}
	if _, ok := q.bare.Key(node); ok {
		return q.bare
	}
	return nil
}

// cause says why a pod does not fit on a node.
func (q *asked) cause(node int) alloc.Cause {
	if q.pod.CPU == 0 && q.pod.HostMemory == 0 {
		return q.fits.Cause(node)
	}
	return q.bare.Cause(node)
}
