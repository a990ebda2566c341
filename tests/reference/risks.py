"""Definition 2 for one image, with the neighborhood given as a list of images; `classify` is C."""


def standard_risk(classify, x, y):
    return 1 if classify(x) != y else 0


def adversarial_risk(classify, neighbors, y):
    return max(1 if classify(neighbor) != y else 0 for neighbor in neighbors)


def robust_risk(classify, x, neighbors):
    return max(1 if classify(neighbor) != classify(x) else 0 for neighbor in neighbors)
