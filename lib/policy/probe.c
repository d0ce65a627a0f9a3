/*
 * How fast a loss falls: the slope of a line through losses over time, by weighted least squares,
 * in parts of the loss that is left above the target. A curve that falls exponentially has the same
 * rate everywhere. The standard error comes from the residuals of the line, so what noise and
 * curvature leave open is part of it; it holds where all losses have the same noise, whatever their
 * weights (Kish's design effect), and is too great where the noise falls with the weight. Sums are
 * kept about the means (Welford; West, CACM 1979): O(1) for a loss, and no loss is stored.
 */
#include "policy/internal.h"

void pl_policy_probe_add(struct pl_policy_probe *p, double seconds, double loss, double weight)
{
	double dt = seconds - p->t, dl = loss - p->loss, part;

	if (!isfinite(loss) || !(weight > 0))
		return;
	p->n++;
	p->weight += weight;
	p->weights2 += weight * weight;
	part = weight / p->weight;
	p->t += part * dt;
	p->loss += part * dl;
	p->tt += weight * dt * (seconds - p->t);
	p->tl += weight * dt * (loss - p->loss);
	p->ll += weight * dl * (loss - p->loss);
}

static double design_effect(const struct pl_policy_probe *p)
{
	return p->n * p->weights2 / (p->weight * p->weight);
}

bool pl_policy_probe_rate(const struct pl_policy_probe *p, double target, struct pl_policy_rate *r)
{
	double above = p->loss - (isnan(target) ? 0 : target), slope, rest;

	if (p->n < PL_POLICY_PROBE_LEAST || !(p->tt > 0) || !(above > 0))
		return false;
	slope = p->tl / p->tt;
	rest = p->ll - slope * p->tl;
	r->rate = -slope / above;
	r->error = sqrt((rest > 0 ? rest : 0) / (p->n - 2) / p->tt * design_effect(p)) / above;
	return true;
}

double pl_policy_probe_error(const struct pl_policy_probe *p)
{
	return p->n > 1 ? sqrt(p->ll / p->weight / (p->n - 1) * design_effect(p)) : INFINITY;
}
