package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

// errReview marks a request that is not a review which this server can answer.
var errReview = errors.New("invalid admission review")

// readReview reads a review's request. Fields that this version does not know are left alone: they are the API
// server's, and a patch does not touch them.
func readReview(body []byte) (*admissionv1.AdmissionRequest, error) {
	var review admissionv1.AdmissionReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
		return nil, fmt.Errorf("%w: %w", errReview, err)
	}
	if want := admissionv1.SchemeGroupVersion.String(); review.APIVersion != want || review.Kind != "AdmissionReview" {
		return nil, fmt.Errorf("%w: it is %q %q, not %s AdmissionReview", errReview, review.APIVersion, review.Kind, want)
	}
	if review.Request == nil || review.Request.UID == "" {
		return nil, fmt.Errorf("%w: it has no request with a uid", errReview)
	}
	return review.Request, nil
}

// readObject reads the object under review.
func readObject(request *admissionv1.AdmissionRequest, into any) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(request.Object.Raw, into); err != nil {
		return fmt.Errorf("%w: read the %s: %w", errReview, request.Kind.Kind, err)
	}
	return nil
}

// creates reports whether the request creates an object of this resource. The server ignores other operations and
// subresources.
func creates(request *admissionv1.AdmissionRequest, group, resource string) bool {
	return request.Operation == admissionv1.Create && isOf(request, group, resource)
}

// changes is creates of an update.
func changes(request *admissionv1.AdmissionRequest, group, resource string) bool {
	return request.Operation == admissionv1.Update && isOf(request, group, resource)
}

func isOf(request *admissionv1.AdmissionRequest, group, resource string) bool {
	return request.SubResource == "" && request.Resource.Group == group && request.Resource.Resource == resource
}

// writeReview writes the answer to a request: a patch, possibly empty, and warnings, or the reason of a refusal in one
// line.
func writeReview(request *admissionv1.AdmissionRequest, given admission, refusal error) ([]byte, error) {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: refusal == nil, Warnings: given.warnings}
	switch {
	case refusal != nil:
		response.Result = status(refusal)
	case len(given.patch) > 0:
		text, err := json.Marshal(given.patch)
		if err != nil {
			return nil, fmt.Errorf("write the patch: %w", err)
		}
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = text, &kind
	}
	text, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	})
	if err != nil {
		return nil, fmt.Errorf("write the review: %w", err)
	}
	return text, nil
}

// status is a refusal as the API server passes it on. An error of the API server keeps its own code, so that clients
// know whether to try again.
func status(refusal error) *metav1.Status {
	result := &metav1.Status{
		Status:  metav1.StatusFailure,
		Message: oneLine(refusal),
		Reason:  metav1.StatusReasonForbidden,
		Code:    http.StatusForbidden,
	}
	var fault apierrors.APIStatus
	switch {
	case refused(refusal):
	case errors.Is(refusal, errReview):
		result.Reason, result.Code = metav1.StatusReasonBadRequest, http.StatusBadRequest
	case errors.As(refusal, &fault) && fault.Status().Code >= http.StatusBadRequest:
		result.Reason, result.Code = fault.Status().Reason, fault.Status().Code
	default:
		result.Reason, result.Code = metav1.StatusReasonServiceUnavailable, http.StatusServiceUnavailable
	}
	return result
}

// refused reports whether an object is refused for what it is.
func refused(refusal error) bool {
	return errors.Is(refusal, dialect.ErrRefused) || errors.Is(refusal, dialect.ErrClaim) || errors.Is(refusal, errQueue)
}

// oneLine joins the faults of a claim into one line.
func oneLine(refusal error) string {
	text := strings.ReplaceAll(refusal.Error(), "\n"+dialect.ErrClaim.Error()+": ", "; ")
	return strings.ReplaceAll(text, "\n", "; ")
}
