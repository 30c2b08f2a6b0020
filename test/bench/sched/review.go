package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	// reviewTime is how long an honest review takes, and webhookMemory what the webhook's process has in memory.
	reviewTime, webhookMemory = "cluster.review_ms", "cluster.webhook_mib"
	// reviewNodes, and the claims on them. One namespace has crowdedClaims of these and a quota, the others have
	// namespaceClaims each.
	reviewNodes, allClaims, crowdedClaims, namespaceClaims = 1000, 64000, 10000, 1000
	// reviewsTaken are the honest reviews of each case, loadedReviews those under load, of which there are fewer where they
	// take longer than loadedLimit together.
	reviewsTaken, loadedReviews, loadedLimit = 5000, 1000, 3 * time.Minute
	// crowded is the namespace with a quota, free one without.
	crowded, free = "crowded", "claims-01"
)

// measureReviews asks a webhook that knows 64,000 claims, first alone, then beside a load from somebody who may reach
// its port.
func measureReviews(ctx context.Context, o options) (rows []measurement.Row, err error) {
	limit, err := memoryLimit(o.root)
	if err != nil {
		return nil, err
	}
	b, err := openIdle(ctx, o, o.NodesOr(reviewNodes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	claims, err := b.crowd(ctx, o.Few(allClaims), o.Few(crowdedClaims), o.Few(namespaceClaims))
	if err != nil {
		return nil, err
	}
	w, err := b.startWebhook(ctx, "{plain: {}}")
	if err != nil {
		return nil, err
	}
	if w.bare, err = b.startBare(ctx); err != nil {
		return nil, err
	}
	beside := fmt.Sprintf("%d claims on %d nodes", claims, b.nodes)
	rows, err = w.measureAlone(ctx, o, beside)
	if err != nil {
		return nil, err
	}
	loaded, err := w.measureLoaded(ctx, o, beside, limit)
	return append(rows, loaded...), err
}

// measureAlone asks a webhook that nobody else asks.
func (w *webhook) measureAlone(ctx context.Context, o options, beside string) (rows []measurement.Row, err error) {
	var bare []time.Duration
	for _, where := range []struct{ name, namespace string }{{"no quota", free}, {"a quota in a namespace of many claims", crowded}} {
		took, err := w.review(ctx, where.namespace, o.Few(reviewsTaken))
		if err != nil {
			return nil, err
		}
		rows = append(rows, percentile(where.name, 3, took.reviews, "reviews of pods with a share, one after the other; "+beside))
		bare = append(bare, took.bare...)
	}
	now, most, err := w.Memory()
	if err != nil {
		return nil, err
	}
	return append(rows, percentile("a bare TLS round trip in turn with these", 0, bare, "what the machine takes for as many bytes"),
		target.Less(webhookMemory, "after these reviews", "MiB", 128, []float64{mebibytes(now)}, fmt.Sprintf("%s; the most so far was %.0f MiB", beside, mebibytes(most)))), nil
}

// measureLoaded asks a webhook beside a load, which may take as much memory as the limit says.
func (w *webhook) measureLoaded(ctx context.Context, o options, beside string, limit uint64) ([]measurement.Row, error) {
	took, err := w.reviewUnderLoad(ctx, free, o.Few(loadedReviews))
	if err != nil {
		return nil, err
	}
	_, most, err := w.Memory()
	if err != nil {
		return nil, err
	}
	load := fmt.Sprintf("%d idle connections, and %d senders of bodies of %d MiB without a pause; %s", idleConnections, bodySenders, bodyBytes>>20, beside)
	return []measurement.Row{
		percentile("under load", 1000, took.reviews,
			"reviews, each on a connection of its own; a refused one counts as one that took as long as the API server waits; "+load),
		percentile("a bare TLS round trip in turn with those under load", 0, took.bare, "what the machine takes for as many bytes, on a connection of its own"),
		target.Less(webhookMemory, "the most, under load", "MiB", mebibytes(limit), []float64{mebibytes(most)}, load+"; the goal is the limit in the chart"),
	}, nil
}

func mebibytes(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// percentile is a row of the 99th percentile in ms, without a goal where that is 0; its worst is the longest.
func percentile(name string, goal float64, took []time.Duration, note string) measurement.Row {
	sorted := slices.Sorted(slices.Values(took))
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	row := target.Less(reviewTime, name, "ms", goal, []float64{ms(sorted[(len(sorted)*99-1)/100])},
		fmt.Sprintf("99th percentile of %d, whose median is %.2f ms: %s", len(sorted), ms(sorted[len(sorted)/2]), note))
	row.Worst, row.Runs = ms(sorted[len(sorted)-1]), len(sorted)
	if goal == 0 {
		row.Goal = nil
	}
	return row
}

// memoryLimit is the webhook's in the chart, in bytes.
func memoryLimit(root string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(root, "deploy", "chart", "values.yaml"))
	if err != nil {
		return 0, fmt.Errorf("read the chart's values: %w", err)
	}
	var values struct {
		Webhook struct {
			Resources corev1.ResourceRequirements `json:"resources"`
		} `json:"webhook"`
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return 0, fmt.Errorf("read the chart's values: %w", err)
	}
	limit := values.Webhook.Resources.Limits[corev1.ResourceMemory]
	if limit.Value() <= 0 {
		return 0, errors.New("read the chart's values: the webhook has no memory limit")
	}
	return uint64(limit.Value()), nil
}

// crowd publishes all nodes and makes claims that have a share each, evenly over the GPUs. The crowded namespace has a
// quota that leaves room.
func (b *bench) crowd(ctx context.Context, all, inCrowded, inEach int) (int, error) {
	if err := b.publish(ctx); err != nil {
		return 0, err
	}
	of := func(i int) string {
		if i < inCrowded {
			return crowded
		}
		return fmt.Sprintf("claims-%02d", (i-inCrowded)/inEach)
	}
	names := map[string]bool{}
	for i := range all {
		if name := of(i); !names[name] {
			names[name] = true
			if err := b.makeNamespace(ctx, name); err != nil {
				return 0, err
			}
		}
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.DefaultResourceRequestsPrefix + v1alpha1.ResourceMemory: resource.MustParse("10Pi")},
	}}
	if _, err := b.client.CoreV1().ResourceQuotas(crowded).Create(ctx, quota, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("make a quota: %w", err)
	}
	shares, err := divvyPods("share", smallShare)
	if err != nil {
		return 0, err
	}
	err = each(ctx, all, func(ctx context.Context, i int) error { return b.holdShare(ctx, shares, of(i), i) })
	if err != nil {
		return 0, fmt.Errorf("make claims: %w", err)
	}
	b.Say("made %d claims", all)
	return all, nil
}

// taken is how long reviews took, and bare round trips that were made in turn with them.
type taken struct{ reviews, bare []time.Duration }

// review sends honest reviews, one after the other on a connection that stays, as the API server's does. The first one,
// which makes the connection, does not count.
func (w *webhook) review(ctx context.Context, namespace string, n int) (took taken, err error) {
	body, err := podReview(namespace)
	if err != nil {
		return took, err
	}
	for i := range n + 1 {
		review, err := timed(func() error { return w.send(ctx, kept, body) })
		if err != nil {
			return took, err
		}
		bare, err := timed(func() error { return askBare(ctx, kept, w.bare, body) })
		if err != nil {
			return took, err
		}
		if i > 0 {
			took.reviews, took.bare = append(took.reviews, review), append(took.bare, bare)
		}
	}
	return took, nil
}

// timed returns how long something takes.
func timed(do func() error) (time.Duration, error) {
	begin := time.Now()
	err := do()
	return time.Since(begin), err
}

// apiWaits is how long the API server waits for an answer.
const apiWaits = 10 * time.Second

// send sends one review and fails unless it is answered with leave.
func (w *webhook) send(ctx context.Context, client *http.Client, body []byte) error {
	code, text, err := post(ctx, client, w.reviews+"/mutate-pods?timeout=10s", body)
	if err != nil {
		return fmt.Errorf("send a review: %w", err)
	}
	var review admissionv1.AdmissionReview
	if code != http.StatusOK || json.Unmarshal(text, &review) != nil || review.Response == nil || !review.Response.Allowed {
		return fmt.Errorf("send a review: status %d: %s", code, text)
	}
	return nil
}

// post sends a body and reads the answer, which must come as soon as the API server expects it.
func post(ctx context.Context, client *http.Client, url string, body []byte) (code int, text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiWaits)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	text, err = io.ReadAll(answer.Body)
	return answer.StatusCode, text, err
}

// trusting is for servers with certificates of their own, on the loopback interface. A transport changes what it gets.
func trusting() *tls.Config { return &tls.Config{InsecureSkipVerify: true} } //nolint:gosec // see above

// kept keeps connections, fresh makes one for each request.
var (
	kept  = &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(), ForceAttemptHTTP2: true}}
	fresh = &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(), DisableKeepAlives: true}}
)

// podReview is the review of a pod with a share, as the API server writes it.
func podReview(namespace string) ([]byte, error) {
	pod := podOf(kind{name: "reviewed"}, 0)
	pod.Namespace = namespace
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{}
	for name, amount := range smallShare {
		pod.Spec.Containers[0].Resources.Limits[name] = resource.MustParse(amount)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID("00000000-0000-4000-8000-000000000001"), Operation: admissionv1.Create, Namespace: namespace, Name: pod.Name,
			Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Object:   runtime.RawExtension{Raw: text},
		},
	})
}
