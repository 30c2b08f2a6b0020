package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// reasonNoTemplate is the reason of events on pods whose claim template cannot be made.
const reasonNoTemplate = "NoClaimTemplate"

const (
	makers = 4 // pods served at once
	// sayAfter is how many tries fail before the pod is told, because most faults are gone with the next try.
	sayAfter = 3
	// firstRetry and lastRetry bound the time between two tries for a pod.
	firstRetry, lastRetry = 20 * time.Millisecond, time.Minute
)

// maker makes the claim templates that admitted pods carry. Kubernetes' controller, which makes the claims, waits for
// them.
type maker struct {
	known     *known
	templates *templates
	reasons   *reasons
	client    kubernetes.Interface
	queue     workqueue.TypedRateLimitingInterface[cache.ObjectName]
	made      prometheus.Counter
	log       *slog.Logger
}

func newMaker(client kubernetes.Interface, known *known, reasons *reasons, log *slog.Logger) *maker {
	return &maker{
		known: known, reasons: reasons, client: client, log: log,
		templates: &templates{client: client, known: known, now: func() time.Time { return reasons.now() }, unseen: make(map[use]time.Time)},
		queue:     newTurns(),
		made: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "divvy_controller_templates_made_total", Help: "Claim templates made for admitted pods.",
		}),
	}
}

// stillCarried are the annotations of a pod that are worth a place in the cache: the templates that it carries, until
// it has all its claims.
func stillCarried(pod *corev1.Pod) map[string]string {
	text, ok := pod.Annotations[v1alpha1.TemplatesAnnotation]
	if !ok {
		return nil
	}
	has := make(map[string]bool)
	for _, status := range pod.Status.ResourceClaimStatuses {
		has[status.Name] = true
	}
	for i := range pod.Spec.ResourceClaims {
		if claim := &pod.Spec.ResourceClaims[i]; claim.ResourceClaimTemplateName != nil && !has[claim.Name] {
			return map[string]string{v1alpha1.TemplatesAnnotation: text}
		}
	}
	return nil
}

// needs reports whether a pod waits for templates that it carries.
func needs(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed &&
		len(pod.Annotations) > 0
}

// watch has every pod that needs templates come into the queue.
func (m *maker) watch() error {
	add := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok && needs(pod) {
			m.queue.Add(cache.MetaObjectToName(pod))
		}
	}
	_, err := m.known.others.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, now any) { add(now) },
	})
	if err != nil {
		return fmt.Errorf("watch the pods: %w", err)
	}
	_, err = m.known.templates.Resource().V1().ResourceClaimTemplates().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if template, ok := object.(*resourcev1.ResourceClaimTemplate); ok {
				m.vanished(template)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch the claim templates: %w", err)
	}
	return nil
}

// vanished serves the pods again that still wait for a template that was deleted.
func (m *maker) vanished(template *resourcev1.ResourceClaimTemplate) {
	m.templates.forget(template.Namespace, template.Name)
	pods, err := m.known.podsIn(template.Namespace)
	if err != nil {
		m.log.Error("pods that need a claim template cannot be listed", "error", err)
		return
	}
	for _, pod := range pods {
		if needs(pod) {
			m.queue.Add(cache.MetaObjectToName(pod))
		}
	}
}

// start serves pods until the context ends, and returns what waits for the last.
func (m *maker) start(ctx context.Context) (wait func()) {
	var group sync.WaitGroup
	for range makers {
		group.Go(func() {
			for m.next(ctx) {
			}
		})
	}
	stop := context.AfterFunc(ctx, m.queue.ShutDown)
	return func() {
		if stop() {
			m.queue.ShutDown()
		}
		group.Wait()
	}
}

// next serves a pod. It returns false when there will be no more.
func (m *maker) next(ctx context.Context) bool {
	name, end := m.queue.Get()
	if end {
		return false
	}
	defer m.queue.Done(name)
	pod, err := m.known.pod(name.Namespace, name.Name)
	if err == nil && needs(pod) {
		err = m.serve(ctx, pod)
	}
	if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		m.queue.Forget(name)
		return true
	}
	// What somebody forged stays as it is; everything else can change.
	forged := errors.Is(err, dialect.ErrRefused)
	if forged {
		m.queue.Forget(name)
	} else {
		m.queue.AddRateLimited(name)
	}
	if forged || m.queue.NumRequeues(name) == sayAfter {
		m.log.Error("a pod waits for its claim template", "namespace", name.Namespace, "pod", name.Name, "error", err)
		if err := m.say(ctx, pod, err); err != nil {
			m.log.Error("a pod is not told why it waits", "error", err)
		}
	}
	return true
}

// serve makes what a pod carries.
func (m *maker) serve(ctx context.Context, pod *corev1.Pod) error {
	if left(pod) {
		full, err := m.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the pod %s: %w", pod.Name, err)
		}
		pod = full
	}
	carried, err := dialect.Carried(pod)
	if err != nil {
		return err
	}
	for i := range carried {
		made, err := m.templates.ensure(ctx, &carried[i])
		if err != nil {
			return err
		}
		if made {
			m.made.Inc()
		}
	}
	return nil
}

// say writes on a pod why it waits. The same event is written once.
func (m *maker) say(ctx context.Context, pod *corev1.Pod, why error) error {
	event := m.reasons.event(pod, noteOf(strings.ReplaceAll(why.Error(), "\n", "; ")))
	event.Reason, event.Action = reasonNoTemplate, "MakingClaimTemplate"
	_, err := m.client.EventsV1().Events(pod.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("write why pod %s/%s waits: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
