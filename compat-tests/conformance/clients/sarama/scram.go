package main

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// scramClient is the client's side of SCRAM-SHA-512 (RFC 5802), which sarama leaves to its users.
type scramClient struct {
	password, firstBare, expected string
	steps                         int
}

func signed(key []byte, message string) []byte {
	made := hmac.New(sha512.New, key)
	made.Write([]byte(message))
	return made.Sum(nil)
}

func (s *scramClient) Begin(user, password, _ string) error {
	name := strings.NewReplacer("=", "=3D", ",", "=2C").Replace(user)
	s.password, s.firstBare, s.steps = password, "n="+name+",r="+rand.Text(), 0
	return nil
}

func (s *scramClient) Done() bool { return s.steps == 3 }

func (s *scramClient) Step(challenge string) (string, error) {
	s.steps++
	switch s.steps {
	case 1:
		return "n,," + s.firstBare, nil
	case 2:
		return s.prove(challenge)
	default:
		if challenge != s.expected {
			return "", errors.New("the broker does not know the password")
		}
		return "", nil
	}
}

func (s *scramClient) prove(challenge string) (string, error) {
	fields := map[string]string{}
	for _, field := range strings.Split(challenge, ",") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	salt, err := base64.StdEncoding.DecodeString(fields["s"])
	if err != nil {
		return "", err
	}
	iterations, err := strconv.Atoi(fields["i"])
	if err != nil {
		return "", err
	}
	salted, err := pbkdf2.Key(sha512.New, s.password, salt, iterations, sha512.Size)
	if err != nil {
		return "", err
	}
	withoutProof := "c=biws,r=" + fields["r"]
	exchanged := s.firstBare + "," + challenge + "," + withoutProof
	proof := signed(salted, "Client Key")
	stored := sha512.Sum512(proof)
	for i, octet := range signed(stored[:], exchanged) {
		proof[i] ^= octet
	}
	s.expected = "v=" + base64.StdEncoding.EncodeToString(signed(signed(salted, "Server Key"), exchanged))
	return fmt.Sprintf("%s,p=%s", withoutProof, base64.StdEncoding.EncodeToString(proof)), nil
}
