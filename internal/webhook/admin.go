package webhook

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// mutateClaim has a claim's requests for admin access take nothing, so that they are allocated beside shares.
func (j *judge) mutateClaim(_ context.Context, request *admissionv1.AdmissionRequest) (admission, error) {
	if !creates(request, resourcev1.GroupName, "resourceclaims") {
		return admission{}, nil
	}
	claim := &resourcev1.ResourceClaim{}
	if err := readObject(request, claim); err != nil {
		return admission{}, err
	}
	return admission{patch: j.translator.Classes().OpenPatch(&claim.Spec, "spec")}, nil
}

// mutateTemplate does the same for the claim in a template.
func (j *judge) mutateTemplate(_ context.Context, request *admissionv1.AdmissionRequest) (admission, error) {
	if !creates(request, resourcev1.GroupName, "resourceclaimtemplates") {
		return admission{}, nil
	}
	template := &resourcev1.ResourceClaimTemplate{}
	if err := readObject(request, template); err != nil {
		return admission{}, err
	}
	return admission{patch: j.translator.Classes().OpenPatch(&template.Spec.Spec, "spec", "spec")}, nil
}
