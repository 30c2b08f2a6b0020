package webhook

import (
	"context"
	"crypto/rand"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// judge answers requests: a patch, or an error that is the reason of a refusal.
type judge struct {
	translator *dialect.Translator
	specs      *specs
	fleet      *fleet
	runtimes   *runtimes
	ranges     *bounds[dialect.Range]
	quotas     *quotas
	queues     *queues
}

// mutatePod translates a pod that is created. The pod carries the templates that it then names, because it is not
// certain yet that it is admitted; the controller makes them when it is.
func (j *judge) mutatePod(_ context.Context, request *admissionv1.AdmissionRequest) (admission, error) {
	if !creates(request, "", "pods") {
		return admission{}, nil
	}
	pod := &corev1.Pod{}
	if err := readObject(request, pod); err != nil {
		return admission{}, err
	}
	// A pod under creation may leave its namespace to the request.
	pod.Namespace = request.Namespace
	if !j.translator.Match(pod) {
		return admission{}, nil
	}
	inventory := j.fleet.inventory()
	translations := inventory.translations
	translations.Handlers, translations.Ranges, translations.Counting = j.runtimes.all(), j.ranges.of(pod.Namespace), inventory.sizes
	translations.Name, translations.Queues = claimName, j.queues.now()
	made, err := j.translator.Translate(pod, translations)
	if err != nil {
		return admission{}, err
	}
	if err := made.Carry(pod); err != nil {
		return admission{}, err
	}
	// The quota comes last: a pod that it lets through counts.
	dryRun := request.DryRun != nil && *request.DryRun
	if err := j.quotas.checkPod(pod.Namespace, &made, inventory.sizes, dryRun); err != nil {
		return admission{}, err
	}
	return admission{patch: made.Patch, warnings: made.Warnings}, nil
}

// claimName is the name of a claim that Divvy's scheduler is to make.
func claimName() string {
	var random [v1alpha1.ClaimNameBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return v1alpha1.ClaimName(random)
}

// validatePod refuses a pod whose containers use claims in a way that an agent cannot prepare.
func (j *judge) validatePod(ctx context.Context, request *admissionv1.AdmissionRequest) (admission, error) {
	if !creates(request, "", "pods") {
		return admission{}, nil
	}
	pod := &corev1.Pod{}
	if err := readObject(request, pod); err != nil {
		return admission{}, err
	}
	kernel := j.translator.OwnKernel(pod, j.runtimes.all())
	specs, err := j.specs.of(ctx, request.Namespace, pod, dialect.CheckedClaims(pod, kernel, j.fleet.inventory().swaps))
	if err != nil {
		return admission{}, err
	}
	classes := j.translator.Classes()
	if err := classes.CheckContainers(pod, specs, kernel); err != nil {
		return admission{}, err
	}
	return admission{}, dialect.CheckHostMemory(pod, specs)
}

// validateClaim checks a claim that is created, and holds the quotas of its namespace.
func (j *judge) validateClaim(_ context.Context, request *admissionv1.AdmissionRequest) (admission, error) {
	if !creates(request, resourcev1.GroupName, "resourceclaims") {
		return admission{}, nil
	}
	claim := &resourcev1.ResourceClaim{}
	if err := readObject(request, claim); err != nil {
		return admission{}, err
	}
	if err := j.translator.Classes().ValidateClaim(&claim.Spec); err != nil {
		return admission{}, err
	}
	if err := j.translator.CheckWeights(&claim.Spec); err != nil {
		return admission{}, err
	}
	if !j.translator.Classes().Concerns(&claim.Spec) {
		return admission{}, nil
	}
	claim.Namespace = request.Namespace
	if err := j.translator.CheckMaker(claim, request.UserInfo.Username, j.queues.now()); err != nil {
		return admission{}, err
	}
	dryRun := request.DryRun != nil && *request.DryRun
	return admission{}, j.quotas.checkClaim(claim, j.fleet.sizes(), dryRun)
}

// validateTemplate checks the claim in a template that is created.
func (j *judge) validateTemplate(_ context.Context, request *admissionv1.AdmissionRequest) (admission, error) {
	if !creates(request, resourcev1.GroupName, "resourceclaimtemplates") {
		return admission{}, nil
	}
	template := &resourcev1.ResourceClaimTemplate{}
	if err := readObject(request, template); err != nil {
		return admission{}, err
	}
	if err := j.translator.Classes().ValidateClaim(&template.Spec.Spec); err != nil {
		return admission{}, err
	}
	return admission{}, j.translator.CheckWeights(&template.Spec.Spec)
}
