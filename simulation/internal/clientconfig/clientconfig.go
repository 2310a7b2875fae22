// Package clientconfig validates how an API server reaches a webhook, with the errors of the real one. The rules are
// those of k8s.io/apiserver/pkg/util/webhook/validation.go, which cannot be imported without gRPC and OpenTelemetry.
package clientconfig

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Service is a reference to a Service.
type Service struct {
	Namespace, Name string
	Path            *string
	Port            int32
}

// Validate validates a URL or a service, of which exactly one must be set.
func Validate(path *field.Path, address *string, service *Service) field.ErrorList {
	switch {
	case (address == nil) == (service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case address != nil:
		return validateURL(path.Child("url"), *address)
	}
	return validateService(path.Child("service"), service)
}

func validateURL(path *field.Path, address string) field.ErrorList {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(address)
	if err != nil {
		return field.ErrorList{field.Required(path, "url must be a valid URL: "+err.Error()+form)}
	}
	var errs field.ErrorList
	if u.Scheme != "https" {
		errs = append(errs, field.Invalid(path, u.Scheme, "'https' is the only allowed URL scheme"+form))
	}
	if u.Host == "" {
		errs = append(errs, field.Invalid(path, u.Host, "host must be specified"+form))
	}
	if u.User != nil {
		errs = append(errs, field.Invalid(path, u.User.String(), "user information is not permitted in the URL"))
	}
	if u.Fragment != "" {
		errs = append(errs, field.Invalid(path, u.Fragment, "fragments are not permitted in the URL"))
	}
	if u.RawQuery != "" {
		errs = append(errs, field.Invalid(path, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	return errs
}

// validateService reports a missing name as a missing namespace and the other way around: the callers in the real
// server pass them in the wrong order.
func validateService(path *field.Path, s *Service) field.ErrorList {
	var errs field.ErrorList
	if s.Namespace == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("namespace"), ""))
	}
	if problems := validation.IsValidPortNum(int(s.Port)); problems != nil {
		errs = append(errs,
			field.Invalid(path.Child("port"), s.Port, "port is not valid: "+strings.Join(problems, ", ")))
	}
	if s.Path == nil || *s.Path == "" || *s.Path == "/" {
		return errs
	}
	return append(errs, validatePath(path.Child("path"), *s.Path)...)
}

func validatePath(path *field.Path, value string) field.ErrorList {
	if value == "//" {
		return field.ErrorList{field.Invalid(path, value, "segment[0] may not be empty")}
	}
	var errs field.ErrorList
	if !strings.HasPrefix(value, "/") {
		errs = append(errs, field.Invalid(path, value, "must start with a '/'"))
	}
	for i, segment := range strings.Split(strings.TrimSuffix(value[1:], "/"), "/") {
		if segment == "" {
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("segment[%d] may not be empty", i)))
			continue
		}
		for _, problem := range validation.IsDNS1123Subdomain(segment) {
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("segment[%d]: %v", i, problem)))
		}
	}
	return errs
}

// ValidateReviewVersions validates the versions of reviews that a webhook understands. whenEmpty is the error of an
// empty list.
func ValidateReviewVersions(path *field.Path, versions []string, whenEmpty string) field.ErrorList {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, whenEmpty)}
	}
	var errs field.ErrorList
	seen, accepted := map[string]bool{}, false
	for i, v := range versions {
		if seen[v] {
			errs = append(errs, field.Invalid(path.Index(i), v, "duplicate version"))
			continue
		}
		seen[v] = true
		for _, problem := range validation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(path.Index(i), v, problem))
		}
		accepted = accepted || v == "v1" || v == "v1beta1"
	}
	if !accepted {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of v1, v1beta1"))
	}
	return errs
}
