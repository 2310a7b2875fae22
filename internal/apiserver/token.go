package apiserver

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	tokenSubresource = "token"
	// tokenIssuer is also the audience of tokens that are requested without one.
	tokenIssuer = "https://kubernetes.default.svc.cluster.local"
)

// serviceAccount reports whether the kind has the subresource token.
func (k *Kind) serviceAccount() bool {
	return k.groupResource() == schema.GroupResource{Resource: "serviceaccounts"}
}

func newTokenKind() *Kind {
	k := Builtin[authenticationv1.TokenRequest](authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
		tokenSubresource, authenticationv1.AddToScheme)
	k.Rules.Default = func(obj Object) {
		if spec := &obj.(*authenticationv1.TokenRequest).Spec; spec.ExpirationSeconds == nil {
			spec.ExpirationSeconds = new(int64(60 * 60))
		}
	}
	return k
}

// createToken returns a token of a service account. The server accepts all requests, with any token and without one.
func (r *request) createToken() (*response, error) {
	decoded, part, options, err := r.created()
	if err != nil {
		return nil, err
	}
	token, kind := decoded.(*authenticationv1.TokenRequest), part.kind.GroupKind()
	invalid := func(name string, path *field.Path, value any, detail string) error {
		return apierrors.NewInvalid(kind, name, field.ErrorList{field.Invalid(path, value, detail)})
	}
	if token.Name != "" && token.Name != r.name {
		return nil, invalid(r.name, field.NewPath("metadata", "name"), token.Name,
			"must match the service account name if specified")
	}
	account := r.find(r.namespace, r.name)
	if account == nil {
		return nil, apierrors.NewNotFound(r.kind.groupResource(), r.name)
	}
	uid := account.obj.GetUID()
	if token.UID != "" && token.UID != uid {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, r.name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)",
				token.UID, uid))
	}
	token.Name, token.UID, token.CreationTimestamp = r.name, uid, now()
	if len(token.Spec.Audiences) == 0 {
		token.Spec.Audiences = []string{tokenIssuer}
	}
	seconds, path := *token.Spec.ExpirationSeconds, field.NewPath("spec", "expirationSeconds")
	switch {
	case seconds < 10*60:
		return nil, invalid("", path, seconds, "may not specify a duration less than 10 minutes")
	case seconds > 1<<32:
		return nil, invalid("", path, seconds, "may not specify a duration larger than 2^32 seconds")
	}
	token.Status = authenticationv1.TokenRequestStatus{} // reviews have no token
	if err := part.admit(token, nil, options); err != nil {
		return nil, err
	}
	expires := token.CreationTimestamp.Add(time.Duration(seconds) * time.Second)
	text, err := r.token(token, expires)
	if err != nil {
		return nil, err
	}
	token.Status.Token, token.Status.ExpirationTimestamp = text, metav1.NewTime(expires)
	return part.object(http.StatusCreated, &record{kind: part.kind, obj: token})
}

// token returns the text of a token. Its key is no secret: the same in all servers, so that the seed determines it.
func (r *request) token(request *authenticationv1.TokenRequest, expires time.Time) (string, error) {
	bound := map[string]any{"namespace": request.Namespace, "serviceaccount": claimOf(request)}
	if ref := request.Spec.BoundObjectRef; ref != nil {
		obj, err := r.boundObject(ref)
		if err != nil {
			return "", err
		}
		bound[strings.ToLower(ref.Kind)] = claimOf(obj)
		if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			bound["node"] = map[string]any{"name": pod.Spec.NodeName}
			if node := r.server.find(schema.GroupResource{Resource: "nodes"}, pod.Spec.NodeName); node != nil {
				bound["node"] = claimOf(node.obj)
			}
		}
	}
	issued := request.CreationTimestamp.Unix()
	claims, err := json.Marshal(map[string]any{
		"aud": request.Spec.Audiences, "exp": expires.Unix(), "iat": issued,
		"iss": tokenIssuer, "jti": r.server.uid(), "kubernetes.io": bound, "nbf": issued,
		"sub": "system:serviceaccount:" + request.Namespace + ":" + request.Name,
	})
	if err != nil {
		return "", fmt.Errorf("encode the claims of a token: %w", err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"EdDSA"}`)) + "." + encode(claims)
	seed := sha256.Sum256([]byte(tokenIssuer))
	return text + "." + encode(ed25519.Sign(ed25519.NewKeyFromSeed(seed[:]), []byte(text))), nil
}

func claimOf(obj Object) map[string]any {
	return map[string]any{"name": obj.GetName(), "uid": obj.GetUID()}
}

// boundObject returns the object to which a token is bound.
func (r *request) boundObject(ref *authenticationv1.BoundObjectReference) (Object, error) {
	gvk, namespace := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind), r.namespace
	resource := schema.GroupResource{Resource: strings.ToLower(ref.Kind) + "s"}
	switch gvk.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}, schema.GroupKind{Kind: "Secret"}:
	case schema.GroupKind{Kind: "Node"}:
		namespace = ""
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", gvk))
	}
	if ref.Name == "" {
		return nil, apierrors.NewBadRequest("Name parameter required.")
	}
	if texts := content.IsPathSegmentName(ref.Name); len(texts) > 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", ref.Name,
			strings.Join(texts, ";")))
	}
	found := r.server.find(resource, keyOf(namespace, ref.Name))
	if found == nil {
		return nil, apierrors.NewNotFound(resource, ref.Name)
	}
	if pod, ok := found.obj.(*corev1.Pod); ok && pod.Spec.ServiceAccountName != r.name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with "+
			"different serviceaccount name.", r.name))
	}
	if ref.UID != "" && ref.UID != found.obj.GetUID() {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might "+
				"have been deleted and then recreated", ref.UID))
	}
	return found.obj, nil
}
