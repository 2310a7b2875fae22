package apiserver

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	tokenSubresource = "token"
	accountPrefix    = "system:serviceaccount:"
	// tokenIssuer is also the audience of tokens that are requested without one.
	tokenIssuer = "https://kubernetes.default.svc.cluster.local"
)

// serviceAccount reports whether the kind has the subresource token.
func (k *Kind) serviceAccount() bool {
	return k.groupResource() == schema.GroupResource{Resource: "serviceaccounts"}
}

// accountGroups returns the groups of a service account.
func accountGroups(namespace string) []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
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

// createToken returns a token of a service account.
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
	bound := boundClaims{Namespace: request.Namespace, Account: *claimOf(request)}
	if ref := request.Spec.BoundObjectRef; ref != nil {
		obj, err := r.boundObject(ref)
		if err != nil {
			return "", err
		}
		switch claim := claimOf(obj); ref.Kind {
		case "Secret":
			bound.Secret = claim
		case "Node":
			bound.Node = claim
		case "Pod":
			bound.Pod = claim
			if name := obj.(*corev1.Pod).Spec.NodeName; name != "" {
				bound.Node = &objectClaim{Name: name}
				if node := r.server.find(schema.GroupResource{Resource: "nodes"}, name); node != nil {
					bound.Node = claimOf(node.obj)
				}
			}
		}
	}
	issued := request.CreationTimestamp.Unix()
	claims, err := json.Marshal(tokenClaims{
		Audiences: request.Spec.Audiences, Expires: expires.Unix(), Issued: issued, Issuer: tokenIssuer,
		ID: r.uid(request), Bound: bound, NotBefore: issued,
		Subject: accountPrefix + request.Namespace + ":" + request.Name,
	})
	if err != nil {
		return "", fmt.Errorf("encode the claims of a token: %w", err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"EdDSA"}`)) + "." + encode(claims)
	return text + "." + encode(ed25519.Sign(tokenKey(), []byte(text))), nil
}

func tokenKey() ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(tokenIssuer))
	return ed25519.NewKeyFromSeed(seed[:])
}

// tokenClaims are the claims of a token.
type tokenClaims struct {
	Audiences []string    `json:"aud"`
	Expires   int64       `json:"exp"`
	Issued    int64       `json:"iat"`
	Issuer    string      `json:"iss"`
	ID        types.UID   `json:"jti"`
	Bound     boundClaims `json:"kubernetes.io"`
	NotBefore int64       `json:"nbf"`
	Subject   string      `json:"sub"`
}

// boundClaims are the objects without which a token is invalid. The node of a Pod may be missing.
type boundClaims struct {
	Namespace string       `json:"namespace"`
	Node      *objectClaim `json:"node,omitempty"`
	Pod       *objectClaim `json:"pod,omitempty"`
	Secret    *objectClaim `json:"secret,omitempty"`
	Account   objectClaim  `json:"serviceaccount"`
}

type objectClaim struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid,omitempty"`
}

func claimOf(obj Object) *objectClaim { return &objectClaim{obj.GetName(), obj.GetUID()} }

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

// parseToken returns the claims of a token, and whether this server has issued it.
func parseToken(token string) (claims tokenClaims, issued bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims, false
	}
	content, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(content, &claims) != nil {
		return claims, false
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	key := tokenKey().Public().(ed25519.PublicKey)
	return claims, err == nil && ed25519.Verify(key, []byte(parts[0]+"."+parts[1]), signature)
}

// authenticate returns the user of a token, and for which of the audiences it is valid. Its errors have the texts of
// kube-apiserver.
func (s *Server) authenticate(token string, audiences []string) (authenticationv1.UserInfo, []string, error) {
	claims, issued := parseToken(token)
	switch {
	case issued:
		return s.userOf(claims, audiences)
	case claims.Issuer == tokenIssuer:
		return authenticationv1.UserInfo{}, nil,
			errors.New("[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]")
	}
	return authenticationv1.UserInfo{}, nil, errors.New("invalid bearer token")
}

// userOf returns the user of an issued token, and for which of the audiences it is valid.
func (s *Server) userOf(
	claims tokenClaims, audiences []string,
) (user authenticationv1.UserInfo, accepted []string, err error) {
	accepted = slices.DeleteFunc(slices.Clone(audiences), func(a string) bool {
		return !slices.Contains(claims.Audiences, a)
	})
	if len(accepted) == 0 {
		return user, nil, fmt.Errorf("[invalid bearer token, token audiences %q is invalid for the target "+
			"audiences %q]", claims.Audiences, audiences)
	}
	if err := s.checkClaims(claims); err != nil {
		return user, nil, fmt.Errorf("[invalid bearer token, %w]", err)
	}
	bound := claims.Bound
	user.Username, user.UID, user.Groups = claims.Subject, string(bound.Account.UID), accountGroups(bound.Namespace)
	user.Groups = append(user.Groups, authenticatedGroup)
	user.Extra = map[string]authenticationv1.ExtraValue{
		"authentication.kubernetes.io/credential-id": {"JTI=" + string(claims.ID)},
	}
	for kind, claim := range map[string]*objectClaim{"pod": bound.Pod, "node": bound.Node} {
		if claim == nil {
			continue
		}
		user.Extra["authentication.kubernetes.io/"+kind+"-name"] = authenticationv1.ExtraValue{claim.Name}
		if claim.UID != "" {
			user.Extra["authentication.kubernetes.io/"+kind+"-uid"] = authenticationv1.ExtraValue{string(claim.UID)}
		}
	}
	return user, accepted, nil
}

// checkClaims returns why a token is not valid any more. As in the real server, it is a minute later.
func (s *Server) checkClaims(claims tokenClaims) error {
	limit := time.Now().Add(-time.Minute)
	if limit.After(time.Unix(claims.Expires, 0)) {
		return errors.New("service account token has expired")
	}
	bound, invalidated := claims.Bound, errors.New("service account token has been invalidated")
	deleted := func(obj Object) bool {
		return obj.GetDeletionTimestamp() != nil && obj.GetDeletionTimestamp().Time.Before(limit)
	}
	account := s.find(schema.GroupResource{Resource: "serviceaccounts"}, keyOf(bound.Namespace, bound.Account.Name))
	switch {
	case account == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, bound.Account.Name)
	case account.obj.GetUID() != bound.Account.UID:
		return fmt.Errorf("service account UID (%s) does not match claim (%s)", account.obj.GetUID(), bound.Account.UID)
	case deleted(account.obj):
		return fmt.Errorf("service account %s/%s has been deleted", bound.Namespace, bound.Account.Name)
	}
	kind, claim, namespace := "secret", bound.Secret, bound.Namespace
	if bound.Pod != nil {
		kind, claim = "pod", bound.Pod
	} else if bound.Node != nil {
		kind, claim, namespace = "node", bound.Node, ""
	}
	if claim == nil {
		return nil
	}
	found := s.find(schema.GroupResource{Resource: kind + "s"}, keyOf(namespace, claim.Name))
	switch {
	case found == nil:
		return invalidated
	case found.obj.GetUID() != claim.UID:
		return fmt.Errorf("%s UID (%s) does not match service account %s ref claim (%s)", kind, found.obj.GetUID(),
			kind, claim.UID)
	case deleted(found.obj):
		return invalidated
	}
	return nil
}
