package apiserver

import (
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Reviews returns the kinds of authentication.k8s.io and authorization.k8s.io. Their objects are questions: a create
// returns the answer, and nothing is stored.
func Reviews() []*Kind {
	tokens, access := authenticationv1.SchemeGroupVersion.WithKind, authorizationv1.SchemeGroupVersion.WithKind
	kinds := []*Kind{
		reviews[authenticationv1.TokenReview](tokens("TokenReview"), (*request).reviewToken),
		reviews[authenticationv1.SelfSubjectReview](tokens("SelfSubjectReview"), (*request).reviewSelf),
		reviews[authorizationv1.SubjectAccessReview](access("SubjectAccessReview"), (*request).reviewAccess),
		reviews[authorizationv1.SelfSubjectAccessReview](access("SelfSubjectAccessReview"), (*request).reviewAccess),
		reviews[authorizationv1.SelfSubjectRulesReview](access("SelfSubjectRulesReview"), (*request).reviewRules),
		reviews[authorizationv1.LocalSubjectAccessReview](access("LocalSubjectAccessReview"), (*request).reviewAccess),
	}
	kinds[len(kinds)-1].ClusterScoped = false
	return kinds
}

func reviews[T any, P interface {
	*T
	Object
}](gvk schema.GroupVersionKind, review func(r *request, obj Object, admit func() error) (Object, error),
) *Kind {
	k := Builtin[T, P](gvk, strings.ToLower(gvk.Kind)+"s", authenticationv1.AddToScheme)
	if gvk.Group == authorizationv1.GroupName {
		k.AddToScheme = authorizationv1.AddToScheme
	}
	k.ClusterScoped, k.review = true, review
	return k
}

// answer responds to the create of a review.
func (r *request) answer() (*response, error) {
	obj, _, options, err := r.created()
	if err != nil {
		return nil, err
	}
	answer, err := r.kind.review(r, obj, func() error { return r.admit(obj, nil, options) })
	if err != nil {
		return nil, err
	}
	return r.object(http.StatusCreated, &record{kind: r.kind, obj: answer})
}

func (r *request) reviewToken(obj Object, admit func() error) (Object, error) {
	review := obj.(*authenticationv1.TokenReview)
	if review.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	if err := admit(); err != nil {
		return nil, err
	}
	audiences := review.Spec.Audiences
	if len(audiences) == 0 {
		audiences = []string{tokenIssuer}
	}
	user, accepted, err := r.server.authenticate(review.Spec.Token, audiences)
	if review.Status.Authenticated = err == nil; err != nil {
		review.Status.Error = err.Error()
	} else {
		review.Status.User, review.Status.Audiences = user, accepted
	}
	return review, nil // with what else the request has in its status, as in the real server
}

func (r *request) reviewSelf(_ Object, admit func() error) (Object, error) {
	review := r.kind.blank().(*authenticationv1.SelfSubjectReview)
	review.CreationTimestamp, review.Status.UserInfo = now(), r.user
	return review, admit()
}

// reviewAccess answers a SubjectAccessReview, and those of a namespace and of the user of the request.
func (r *request) reviewAccess(obj Object, admit func() error) (Object, error) {
	var spec authorizationv1.SubjectAccessReviewSpec
	var status *authorizationv1.SubjectAccessReviewStatus
	var errs field.ErrorList
	switch review := obj.(type) {
	case *authorizationv1.SubjectAccessReview:
		spec, status = review.Spec, &review.Status
		errs = append(validateAccess(spec), validateEmpty(review.ObjectMeta, review.ObjectMeta, "must be empty")...)
	case *authorizationv1.SelfSubjectAccessReview:
		status = &review.Status
		spec.ResourceAttributes, spec.NonResourceAttributes = review.Spec.ResourceAttributes,
			review.Spec.NonResourceAttributes
		spec.User, spec.Groups = r.user.Username, r.user.Groups
		errs = append(validateAccess(spec), validateEmpty(review.ObjectMeta, review.ObjectMeta, "must be empty")...)
	case *authorizationv1.LocalSubjectAccessReview:
		spec, status = review.Spec, &review.Status
		errs = append(validateAccess(spec), validateLocal(review)...)
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: r.kind.Group}, "", errs)
	}
	if err := admit(); err != nil {
		return nil, err
	}
	a := access{user: spec.User, groups: spec.Groups}
	if of := spec.ResourceAttributes; of != nil { // whose selectors RBAC ignores
		a.verb, a.namespace, a.object, a.subresource = of.Verb, of.Namespace, of.Name, of.Subresource
		a.resource = schema.GroupResource{Group: of.Group, Resource: of.Resource}
	} else {
		a.verb, a.path = spec.NonResourceAttributes.Verb, &spec.NonResourceAttributes.Path
	}
	*status = authorizationv1.SubjectAccessReviewStatus{}
	status.Allowed, status.Reason = r.server.permits(a)
	return obj, nil
}

func (r *request) reviewRules(obj Object, admit func() error) (Object, error) {
	namespace := obj.(*authorizationv1.SelfSubjectRulesReview).Spec.Namespace
	if namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	if err := admit(); err != nil {
		return nil, err
	}
	review := r.kind.blank().(*authorizationv1.SelfSubjectRulesReview)
	review.Status.ResourceRules = []authorizationv1.ResourceRule{}
	review.Status.NonResourceRules = []authorizationv1.NonResourceRule{}
	grants, problems := r.server.grants(access{user: r.user.Username, groups: r.user.Groups, namespace: namespace})
	for _, g := range grants {
		if len(g.Resources) > 0 {
			review.Status.ResourceRules = append(review.Status.ResourceRules, authorizationv1.ResourceRule{
				Verbs: g.Verbs, APIGroups: g.APIGroups, Resources: g.Resources, ResourceNames: g.ResourceNames,
			})
		}
		if len(g.NonResourceURLs) > 0 {
			review.Status.NonResourceRules = append(review.Status.NonResourceRules, authorizationv1.NonResourceRule{
				Verbs: g.Verbs, NonResourceURLs: g.NonResourceURLs,
			})
		}
	}
	if len(problems) > 0 {
		review.Status.EvaluationError = utilerrors.NewAggregate(problems).Error()
	}
	return review, nil
}

// internalPath is a path as messages of the real server contain it.
type internalPath struct{ Path, Verb string }

func validateAccess(spec authorizationv1.SubjectAccessReviewSpec) (errs field.ErrorList) {
	path, of := field.NewPath("spec"), spec.ResourceAttributes
	if of != nil && spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(path.Child("nonResourceAttributes"),
			(*internalPath)(spec.NonResourceAttributes), "cannot be specified in combination with resourceAttributes"))
	}
	if of == nil && spec.NonResourceAttributes == nil {
		errs = append(errs, field.Invalid(path.Child("resourceAttributes"), (*internalPath)(spec.NonResourceAttributes),
			"exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(path.Child("user"), "", "at least one of user or group must be specified"))
	}
	return errs
}

// validateLocal returns what is wrong with a review of a namespace besides.
func validateLocal(review *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	metadata, path, spec := review.ObjectMeta, field.NewPath("spec"), review.Spec
	metadata.Namespace = ""
	errs := validateEmpty(metadata, review.ObjectMeta, "must be empty except for namespace")
	if of := spec.ResourceAttributes; of != nil && of.Namespace != review.Namespace {
		errs = append(errs, field.Invalid(path.Child("resourceAttributes", "namespace"), of.Namespace,
			"must match metadata.namespace"))
	}
	if spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(path.Child("nonResourceAttributes"),
			(*internalPath)(spec.NonResourceAttributes), "disallowed on this kind of request"))
	}
	return errs
}

func validateEmpty(metadata, shown metav1.ObjectMeta, problem string) field.ErrorList {
	metadata.ManagedFields = nil
	if equality.Semantic.DeepEqual(metadata, metav1.ObjectMeta{}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), shown, problem)}
}
